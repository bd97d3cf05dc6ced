import { expect, test } from './fixtures';

test('what is copied in a dialog is copied also where the page is not secure', async ({
  page,
  open,
  product,
}) => {
  await product.create('orders');
  await page.addInitScript(() => Object.defineProperty(navigator, 'clipboard', { value: undefined }));
  await open('ns/default/topics/orders?publish=true');
  const dialog = page.getByRole('dialog', { name: 'Publish a test message' });
  const copy = dialog.getByRole('button', { name: 'Copy as curl' });
  await copy.click();
  await expect(dialog.getByRole('button', { name: 'Copied' })).toBeFocused();
  const key = dialog.getByRole('textbox', { name: 'Key' });
  await key.focus();
  await page.keyboard.press('Control+v');
  await expect(key).toHaveValue(/^curl -sSi .*\/v1\/ns\/default\/topics\/orders\/messages/);
});

test('a key that closes a question closes nothing behind it', async ({ page, open, product }) => {
  await product.create('orders');
  await product.publish('orders', '{}');
  await open('ns/default/topics/orders/messages?open=0:0');
  const panel = page.getByRole('complementary', { name: 'Message 0:0' });
  await expect(panel).toBeVisible();
  await page.getByRole('button', { name: 'Delete' }).click();
  const question = page.getByRole('alertdialog', { name: 'Delete orders?' });
  await expect(question.getByRole('textbox')).toBeFocused();
  await page.keyboard.press('Escape');
  await expect(question).toBeHidden();
  await expect(panel).toBeVisible();
});
