import { randomBytes } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { expect, expectAccessible, test } from './fixtures';
import { reach } from './keys';
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
    await expect(tiles.getByText('nothing was read from objects within a day')).toBeVisible();

    // Its oldest object is emptied: nobody is told before somebody reads, and nobody once it is back.
    const oldest = (await product.objects())[0] ?? '';
    const whole = await readFile(oldest);
    await writeFile(oldest, '');
    const notice = page.getByRole('region', { name: 'Damaged objects' });
    await expect(notice).toHaveCount(0);
    const read = () => product.call('GET', '/topics/orders.paid/messages/0/0').then(() => 'read', String);
    expect(await read()).toContain('corrupt');
    await expect(page.getByRole('alert')).toHaveText('1 object in the object store cannot be read');
    await expect(notice).toContainText(/Partition 0, \d+ messages? from offset 0 up to/);
    await expect(notice).toContainText(`the pack is cut short: 0 of ${whole.length} bytes`);
    await expect(notice).toContainText(basename(oldest));
    await expectAccessible(page);
    await reach(page, notice.getByRole('button', { name: 'Copy the object’s name' }));
    await take(page, '23-damaged');
    await writeFile(oldest, whole);
    expect(await read()).toBe('read');
    await expect(notice).toHaveCount(0);
    await expect(tiles.getByText(/ of .* blocks? a day, .* fetched/)).toBeVisible();
  } finally {
    await product.remove();
  }
});

test('a topic is told with the keyboard to keep only the newest message of each key', async ({
  page,
}, info) => {
  const product = await Product.start(info.project.metadata.prefix as string, OPTIONS);
  try {
    await product.create('prices');
    await page.goto(`${product.url}${product.prefix}ns/default/topics/prices/config`);
    const review = page.getByRole('complementary', { name: 'Changes' });
    const byKey = page.getByLabel('Keep only the newest message of each key');
    const settled = page.getByLabel('Remove what every subscription has settled');
    await reach(page, settled);
    await page.keyboard.press('Space');
    await reach(page, byKey);
    await page.keyboard.press('Space');
    await expect(byKey).toHaveAccessibleDescription(/Not together with removing what is settled/);
    await expect(review).toContainText('Correct the marked fields first.');
    await reach(page, settled, 'Shift+Tab');
    await page.keyboard.press('Space');
    await expect(byKey).toHaveAccessibleDescription(/in the object store/);
    await reach(page, review.getByRole('button', { name: 'Apply' }));
    await take(page, '21-compaction');
    await page.keyboard.press('Enter');
    await expect(review).toContainText('Applied. This is version 2.');
    await reach(page, page.getByRole('link', { name: 'Overview' }), 'Shift+Tab');
    await page.keyboard.press('Enter');
    await expect(page.getByText('without limit; of each key only the newest')).toBeVisible();
    await expect(page.getByText('in 1 partition, dropped ones included')).toBeVisible();
    const { config } = JSON.parse((await product.call('GET', '/topics/prices')).text);
    expect(config.compaction).toBe('key');
  } finally {
    await product.remove();
  }
});

test('publishes are told to wait for the object store where there is one', async ({ page }, info) => {
  const product = await Product.start(info.project.metadata.prefix as string, OPTIONS);
  try {
    await product.create('safe', { default_confirm: 'archived', min_confirm: 'archived' });
    await page.goto(`${product.url}${product.prefix}ns/default/topics/safe/config`);
    const confirm = page.getByRole('button', { name: /Confirm publishes at$/ });
    await expect(confirm).toHaveText('archived');
    await expect(page.getByRole('button', { name: /Refuse publishes below$/ })).toHaveText('archived');
    await confirm.click();
    await page.getByRole('option', { name: /^quorum/ }).click();
    await expect(page.getByRole('complementary', { name: 'Changes' })).toContainText(
      'default_confirmarchivedquorum',
    );
    await page.getByRole('button', { name: 'Reset' }).click();
    await page.getByRole('button', { name: 'Publish test' }).click();
    await page.getByRole('button', { name: /Wait for$/ }).click();
    await page.getByRole('option', { name: /^archived/ }).click();
    await page.getByRole('button', { name: /^Publish Ctrl/ }).click();
    await expect(page.getByRole('region', { name: 'Confirm' })).toContainText('Confirmed at archived');
  } finally {
    await product.remove();
  }
});

test('what compaction needs is said before and after it is refused', async ({
  page,
  open,
  product,
  tolerate,
}) => {
  tolerate.push(/409/);
  await product.create('prices');
  await open('ns/default/topics/prices/config');
  const byKey = page.getByLabel('Keep only the newest message of each key');
  await expect(byKey).toHaveAccessibleDescription(/storage has none/);
  await byKey.check();
  await page.getByRole('button', { name: 'Apply' }).click();
  const refused = page.getByRole('alert');
  await expect(refused).toContainText('The configuration was not changed');
  await expect(refused).toContainText('start storage nodes with --object-store');
  await expect(refused).toContainText('not_supported');
  await take(page, '22-compaction-refused');
  await page.getByRole('button', { name: 'Reset' }).click();
  await expect(byKey).not.toBeChecked();
});
