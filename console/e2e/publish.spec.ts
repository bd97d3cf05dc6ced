import { expect, test } from './fixtures';

test('keys and headers in any script arrive as they were typed', async ({ page, open, product }) => {
  await product.create('orders');
  await open('ns/default/topics/orders?publish=true');
  const dialog = page.getByRole('dialog', { name: 'Publish a test message' });
  await dialog.getByRole('textbox', { name: 'Key' }).fill('Zoë ');
  await expect(dialog.getByText('Spaces around a key cannot be sent from here.')).toBeVisible();
  await dialog.getByRole('textbox', { name: 'Key' }).fill('Zoë');
  await dialog.getByRole('textbox', { name: 'Headers' }).fill('city: Zürich; عنوان: x');
  await expect(dialog.getByText('Write them like region: eu')).toBeVisible();
  await dialog.getByRole('textbox', { name: 'Headers' }).fill('city: Zürich; street: عنوان');
  await dialog.getByRole('button', { name: /^Publish Ctrl/ }).click();
  await expect(dialog.getByRole('region', { name: 'Confirm' })).toBeVisible();
  const { messages } = JSON.parse((await product.call('GET', '/topics/orders/messages')).text);
  expect(messages[0]).toMatchObject({ key: 'Zoë', headers: { city: 'Zürich', street: 'عنوان' } });
});
