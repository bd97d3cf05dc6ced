import { expect, test } from './fixtures';

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
