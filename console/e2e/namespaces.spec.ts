import { expect, expectAccessible, expectFocusKept, test } from './fixtures';

const switches = { name: /^Namespace: / };

test('the way to another namespace is in the bar, as soon as there is one', async ({
  page,
  open,
  product,
}) => {
  await open('ns/default/start');
  const bar = page.getByRole('banner');
  await expect(bar.getByText('default', { exact: true })).toBeVisible();
  await expect(bar.getByRole('button', switches)).toHaveCount(0);
  await product.call('PUT', '/ns/shop', '{}', { 'Content-Type': 'application/json' });
  try {
    await product.create('orders');
    await product.create('carts', {}, 'shop');
    await product.subscribe('billing', { topics: ['carts'] }, 'shop');
    await open('ns/default/topics/orders/messages');
    await bar.getByRole('button', switches).focus();
    await page.keyboard.press('Enter');
    const shop = bar.getByRole('link', { name: 'shop', exact: true });
    await expect(shop).toBeVisible();
    await expectAccessible(page);
    await page.keyboard.press('Escape');
    await expect(shop).toHaveCount(0);
    await expect(bar.getByRole('button', switches)).toBeFocused();
    await page.keyboard.press('Enter');
    for (let tab = 0; tab < 2; tab += 1) await page.keyboard.press('Tab');
    await expect(shop).toBeFocused();
    await page.keyboard.press('Enter');
    // A topic of another namespace is another topic: their list is shown.
    await expect(page).toHaveURL(/\/ns\/shop\/topics$/);
    await expect(page.getByRole('grid').locator('.row-link')).toHaveText(['carts']);
    await expect(bar.getByRole('button', switches)).toHaveText('Namespace: shop');
    await expect(shop).toHaveCount(0);
    await expectFocusKept(page);
    // The screen stays.
    await page.getByRole('navigation').getByRole('link', { name: 'Subscriptions' }).click();
    await expect(page.getByRole('link', { name: 'billing' })).toBeVisible();
    await bar.getByRole('button', switches).click();
    await bar.getByRole('link', { name: 'default', exact: true }).click();
    await expect(page).toHaveURL(/\/ns\/default\/subscriptions$/);
    // A click elsewhere closes it.
    await bar.getByRole('button', switches).click();
    await page.getByRole('heading', { name: 'Subscriptions' }).click();
    await expect(shop).toHaveCount(0);
  } finally {
    await product.call('DELETE', '/ns/shop/subscriptions/billing');
    await product.call('DELETE', '/ns/shop/topics/carts');
    await product.call('DELETE', '/ns/shop');
  }
});

test('a page of a namespace that does not exist leads to those that do', async ({ page, open, tolerate }) => {
  tolerate.push(/404/);
  await open('ns/nowhere/topics');
  await expect(page.getByText('there is no namespace nowhere')).toBeVisible();
  await page.getByRole('button', switches).click();
  await page.getByRole('banner').getByRole('link', { name: 'default', exact: true }).click();
  await expect(page).toHaveURL(/\/ns\/default\/topics$/);
  await expect(page.getByText('there is no namespace nowhere')).toHaveCount(0);
});
