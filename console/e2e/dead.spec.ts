import { expect, expectAccessible, expectFocusKept, test } from './fixtures';
import { reach } from './keys';

test('dead letters say what was searched for them, and how to search more', async ({
  page,
  open,
  product,
}) => {
  await product.create('orders');
  await product.create('orders.dlq');
  await product.publish('orders', '{}');
  await product.subscribe('billing', { topics: ['orders'], dlq: 'orders.dlq' });
  const [lease] = await product.pull('billing', 1);
  await product.queue('billing', 'settle', { dead: [{ lease, reason: 'no stock' }] });
  await open('ns/default/subscriptions/billing/dead');
  const counts = page.getByRole('status').filter({ hasText: 'so far' });
  await expect(counts).toHaveText('1 dead letter so far · 1 found. Searched: all 1 message of orders.dlq');

  // What others have put there since lies before it.
  const lines = Array.from({ length: 250 }, (_, n) => JSON.stringify({ data: { n } }));
  await product.call('POST', '/topics/orders.dlq/messages:batch', lines.join('\n'), {
    'Content-Type': 'application/x-ndjson',
  });
  await page.getByRole('button', { name: 'Refresh' }).click();
  await expect(counts).toContainText('0 found. Searched: the newest 200 of 251 messages of orders.dlq');
  await expect(page.getByText('its own are older')).toBeVisible();
  await page.getByRole('link', { name: 'Search the newest 1,000' }).press('Enter');
  await expect(counts).toContainText('1 found. Searched: all 251 messages of orders.dlq');
  await expect(page.getByRole('row', { name: /no stock/ })).toBeVisible();
  await expect(page.getByRole('link', { name: 'Search the newest' })).toHaveCount(0);
});

test('dead letters are grouped by why, and lead to where they come from', async ({ page, open, product }) => {
  await product.create('orders', { partitions: 2 });
  await product.create('graveyard');
  await product.subscribe('billing', { topics: ['orders'] });
  await product.publishMany('orders', 12);
  await open('ns/default/subscriptions/billing/dead');
  await expect(page.getByText('There are no dead letters so far.')).toBeVisible();
  await product.call('PATCH', '/subscriptions/billing', '{"dlq":"graveyard"}', {
    'Content-Type': 'application/json',
  });
  const leases = await product.pull('billing', 5);
  await product.queue('billing', 'settle', {
    dead: leases.map((lease, n) => ({ lease, reason: n < 3 ? 'no such customer' : '<b>odd</b>' })),
  });
  const many = page.getByRole('button', { name: 'no such customer 3' });
  await expect(many).toBeVisible();
  await expect(page.getByRole('button', { name: '<b>odd</b> 2' })).toBeVisible();
  const table = page.getByRole('region', { name: 'Dead letters, newest first' });
  await expect(table.getByRole('row')).toHaveCount(6);
  await many.press('Enter');
  await expect(table.getByRole('row')).toHaveCount(4);
  await expect(page).toHaveURL(/reason=no/);
  await page.reload();
  await expect(table.getByRole('row')).toHaveCount(4);
  const origin = table.getByRole('link', { name: /^orders \d:\d+$/ }).first();
  const place = (await origin.textContent())?.split(' ')[1];
  await origin.click();
  await expect(page.getByRole('complementary', { name: `Message ${place}` })).toBeVisible();
});

test('dead letters are redriven, and a message is explained, with the keyboard alone', async ({
  page,
  open,
  product,
}) => {
  await product.create('orders');
  await product.create('graveyard');
  await product.subscribe('billing', { topics: ['orders'], dlq: 'graveyard' });
  await product.publishMany('orders', 6);
  const leases = await product.pull('billing', 6);
  await product.queue('billing', 'settle', { dead: leases.map((lease) => ({ lease, reason: 'no stock' })) });
  await open('ns/default/subscriptions/billing/dead');
  const table = page.getByRole('region', { name: 'Dead letters, newest first' });
  await reach(page, table.getByRole('checkbox', { name: 'Pick 0:5' }));
  await page.keyboard.press('Space');
  await reach(page, table.getByRole('checkbox', { name: 'Pick 0:4' }));
  await page.keyboard.press('Space');
  await reach(page, page.getByRole('button', { name: 'Redrive 2' }), 'Shift+Tab');
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog', { name: 'Redrive dead letters of billing' });
  await reach(page, dialog.getByRole('button', { name: 'Preview' }));
  await page.keyboard.press('Enter');
  await expect(dialog.getByRole('region', { name: 'Preview' })).toContainText('2 messages would be');
  expect(await product.totals('billing')).toMatchObject({ unsettled: 0 });
  await expectAccessible(page);
  await reach(page, dialog.getByRole('button', { name: 'Redrive now' }));
  await page.keyboard.press('Enter');
  await expect(dialog.getByRole('region', { name: 'Result' })).toContainText('2 messages will be');
  await expectFocusKept(page);
  expect(await product.totals('billing')).toMatchObject({ unsettled: 2 });
  await page.keyboard.press('Escape');

  await reach(page, table.getByRole('link', { name: 'Explain 0:5' }));
  await page.keyboard.press('Enter');
  const why = page.getByRole('dialog', { name: 'Explain a message of billing' });
  await expect(why.getByRole('region', { name: 'Explanation' })).toContainText('0:5 is ready.');
  await expectAccessible(page);
  await page.keyboard.press('Control+a');
  await page.keyboard.type('0:0');
  await page.keyboard.press('Enter');
  await expect(why.getByRole('region', { name: 'Explanation' })).toContainText('0:0 is dead.');
  await page.keyboard.press('Escape');
  await expect(page).toHaveURL(/\/dead$/);
  await expectFocusKept(page);
});
