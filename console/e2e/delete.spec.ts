import type { Page } from '@playwright/test';
import { deleting, expect, expectAccessible } from './fixtures';

const dialog = (page: Page) => page.getByRole('alertdialog');
const press = (page: Page, name: string) => dialog(page).getByRole('button', { name }).press('Enter');

async function confirm(page: Page, name: string) {
  await expect(dialog(page).getByRole('textbox')).toBeFocused();
  await page.keyboard.type(name);
  await page.keyboard.press('Enter');
}

deleting('what was made anew behind the page stays', async ({ page, open, product, tolerate }) => {
  tolerate.push(/410/);
  await product.create('orders');
  await product.publish('orders', '1');
  // The page, which reads its topic every two seconds, is not to learn of it first.
  let release = () => {};
  const learned = new Promise<void>((resolve) => {
    release = resolve;
  });
  await open('ns/default/topics/orders?delete=true');
  await expect(dialog(page)).toContainText('1 message');
  await page.route('**/v1/ns/default/topics/orders', async (route) => {
    if (route.request().method() === 'GET') await learned;
    await route.continue();
  });
  await product.call('DELETE', '/topics/orders');
  await product.create('orders', { partitions: 2 });
  await confirm(page, 'orders');
  await expect(dialog(page).getByRole('alert')).toContainText('incarnation_gone');
  expect(JSON.parse((await product.call('GET', '/topics/orders')).text).config.partitions).toBe(2);

  release();
  await expect(dialog(page).getByRole('alert')).toContainText('Deleted and made anew meanwhile');
  await expect(dialog(page)).toContainText('0 messages');
  await expect(dialog(page).getByRole('button', { name: 'Delete topic' })).toBeDisabled();
  await expectAccessible(page);
  await press(page, 'Go on with the new one');
  await confirm(page, 'orders');
  await expect(page.getByRole('heading', { name: 'Welcome to Weir' })).toBeVisible();
});

deleting('what was changed meanwhile is shown first', async ({ page, open, product, tolerate }) => {
  tolerate.push(/412/);
  await product.create('orders');
  await product.subscribe('billing', { topics: ['orders'] });
  await open('ns/default/subscriptions/billing?delete=true');
  await expect(dialog(page).getByRole('textbox')).toBeFocused();
  await page.keyboard.type('billing');
  await product.call('PATCH', '/subscriptions/billing', '{"lease_ms":5000}', {
    'Content-Type': 'application/json',
  });
  // Refused, or seen by the page before: it is shown in any case.
  await page.keyboard.press('Enter');
  await expect(dialog(page).getByRole('alert')).toContainText('Changed meanwhile');
  await expect(dialog(page).getByRole('alert')).toContainText('lease_ms');
  await press(page, 'Go on with version 2');
  await dialog(page).getByRole('button', { name: 'Copy as curl' }).click();
  await expect
    .poll(() => page.evaluate(() => navigator.clipboard.readText()))
    .toMatch(/-X DELETE[\s\S]*If-Match: "\d+:2"/);
  await dialog(page).getByRole('textbox').focus();
  await confirm(page, 'billing');
  await expect(page.getByRole('heading', { name: 'Work queues' })).toBeVisible();
});
