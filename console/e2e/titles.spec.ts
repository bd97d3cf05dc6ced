import { expect, test } from './fixtures';

test('every page has a title of its own, and a change of page is told', async ({ page, open, product }) => {
  await product.create('orders');
  await product.subscribe('billing', { topics: ['orders'] });
  await open();
  await expect(page).toHaveTitle('topics · Weir');
  const told = page.locator('[aria-live]', { hasText: /· Weir$/ });
  for (const [link, title] of [
    ['orders', 'orders · topics · Weir'],
    ['Messages', 'messages · orders · topics · Weir'],
    ['Config', 'config · orders · topics · Weir'],
    ['Quick start', 'quick start · Weir'],
  ] as const) {
    await page.getByRole('link', { name: link, exact: true }).click();
    await expect(page).toHaveTitle(title);
    await expect(told).toHaveText(title);
  }
  await page
    .getByRole('navigation', { name: 'Screens' })
    .getByRole('link', { name: 'Subscriptions' })
    .click();
  await expect(page).toHaveTitle('subscriptions · Weir');
  await page.getByRole('link', { name: 'billing' }).click();
  await expect(page).toHaveTitle('billing · subscriptions · Weir');
  await page.getByRole('link', { name: 'Dead letters' }).click();
  await expect(page).toHaveTitle('dead letters · billing · subscriptions · Weir');
  await page.goBack();
  await expect(told).toHaveText('billing · subscriptions · Weir');
  await open('ns/default/nowhere');
  await expect(page.getByRole('heading', { name: 'There is nothing here' })).toBeVisible();
  await expect(page).toHaveTitle('not found · Weir');
});
