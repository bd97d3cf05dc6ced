import { expect, test } from './fixtures';

test('a subscription to two topics says of which each thing is', async ({ page, open, product }) => {
  for (const topic of ['orders', 'returns', 'graveyard']) await product.create(topic);
  for (const topic of ['orders', 'returns']) await product.publish(topic, '{}');
  await product.subscribe('billing', { topics: ['orders', 'returns'], dlq: 'graveyard' });
  const leases = await product.pull('billing', 2);
  await product.queue('billing', 'settle', { dead: leases.map((lease) => ({ lease, reason: 'no stock' })) });

  await open('ns/default/subscriptions/billing?seek=true');
  const seek = page.getByRole('dialog', { name: 'Seek billing' });
  await seek.getByRole('button', { name: 'Preview' }).click();
  const preview = seek.getByRole('region', { name: 'Preview by partition' });
  await expect
    .poll(async () => (await preview.getByRole('rowheader').allTextContents()).sort())
    .toEqual(['orders 0', 'returns 0']);
});
