import { deleting, expect } from './fixtures';

deleting(
  'what was counted of a subscription is not done to one made anew',
  async ({ page, open, product }) => {
    await product.create('orders');
    await product.publish('orders', '{}');
    const make = () => product.subscribe('billing', { topics: ['orders'] });
    await make();
    await open('ns/default/subscriptions/billing?purge=true');
    const dialog = page.getByRole('dialog', { name: 'Purge billing' });
    const preview = dialog.getByRole('region', { name: 'Preview', exact: true });
    await dialog.getByRole('button', { name: 'Preview' }).click();
    await expect(preview).toContainText('1 message would be settled');
    await preview.getByRole('textbox', { name: /name to confirm/ }).fill('billing');
    await product.call('DELETE', '/subscriptions/billing');
    await make();
    await expect(preview).toBeHidden();
    await dialog.getByRole('button', { name: 'Preview' }).click();
    await expect(preview.getByRole('textbox', { name: /name to confirm/ })).toHaveValue('');
  },
);

deleting(
  'a seek of before is not offered to be taken back of one made anew',
  async ({ page, open, product }) => {
    await product.create('orders');
    const make = () => product.subscribe('billing', { topics: ['orders'] });
    await make();
    await open('ns/default/subscriptions/billing?seek=true');
    const dialog = page.getByRole('dialog', { name: 'Seek billing' });
    await dialog.getByRole('button', { name: 'Preview' }).click();
    await dialog.getByRole('button', { name: 'Seek now' }).click();
    await expect(dialog.getByRole('region', { name: 'Result' })).toBeVisible();
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Seek' }).click();
    const back = dialog.getByRole('button', { name: 'Undo the last seek' });
    await expect(back).toBeVisible();
    await product.call('DELETE', '/subscriptions/billing');
    await make();
    await expect(back).toBeHidden();
  },
);
