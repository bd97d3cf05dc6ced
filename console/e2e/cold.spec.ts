import { randomBytes } from 'node:crypto';
import { expect, test } from './fixtures';
import { take } from './pictures';
import { Product } from './product';

/** A store, and a journal so small that messages leave it. */
const OPTIONS = [
  ...['--object-store', 'local', '--seal-after-ms', '2000', '--seal-size', '8MiB'],
  ...['--journal-max', '64MiB', '--journal-file', '16MiB', '--data-shards', '1'],
];

test('where the messages of a topic are, and what a day costs', async ({ page }, info) => {
  test.setTimeout(120_000);
  const product = await Product.start(info.project.metadata.prefix as string, OPTIONS);
  try {
    await product.create('orders.paid', { partitions: 2 });
    const publish = () =>
      product
        .publish('orders.paid', new Uint8Array(randomBytes(512 << 10)), {
          'Content-Type': 'application/octet-stream',
        })
        .catch(() => null); // the journal is full for a moment
    const isCold = async () => {
      await publish();
      const { text } = await product.call('GET', '/topics/orders.paid');
      const { partitions } = JSON.parse(text) as { partitions: { storage: { cold_bytes: number } }[] };
      return partitions.every(({ storage }) => storage.cold_bytes > 0);
    };
    await expect.poll(isCold, { timeout: 60_000, intervals: [50] }).toBe(true);
    await page.goto(`${product.url}${product.prefix}ns/default/topics/orders.paid`);
    const axes = page.getByRole('img', { name: /Cold 0 to \d+, .*Archived/ });
    await expect(axes).toHaveCount(2);
    const tiles = page.getByRole('region', { name: 'Object store' });
    await expect(tiles.getByText(/USD/).first()).toBeVisible();
    await expect(tiles.getByText('Waits for upload')).toBeVisible();
    await take(page, '20-places');
  } finally {
    await product.remove();
  }
});
