import { expect, expectAccessible, test } from './fixtures';

test('a stream is created in the form, read by hand, and shown with its cursor and lag', async ({
  page,
  open,
  product,
}) => {
  await product.create('orders');
  for (const n of [0, 1, 2, 3, 4]) {
    await product.call('POST', '/topics/orders/messages', JSON.stringify({ n }), {
      'Content-Type': 'application/json',
    });
  }
  await open('ns/default/subscriptions');
  await expect(page.getByRole('heading', { name: 'Work queues' })).toBeVisible();
  await page.keyboard.press('n');
  const dialog = page.getByRole('dialog', { name: 'Create a subscription' });
  await dialog.getByRole('textbox', { name: 'Name' }).fill('ledger');
  await dialog.getByLabel('Topics', { exact: true }).fill('orders');
  await dialog.getByRole('button', { name: 'Deliver as' }).click();
  await page.getByRole('option', { name: 'a stream' }).click();
  await dialog.getByRole('button', { name: 'Begin with' }).click();
  await page.getByRole('option', { name: 'the last messages' }).click();
  await dialog.getByLabel('Messages of each partition').fill('4');
  await expectAccessible(page);
  await dialog.getByRole('textbox', { name: 'Name' }).press('Enter');
  await expect(page).toHaveURL(/\/subscriptions\/ledger$/);
  await expect(page.getByText('Nobody reads it: 4 messages behind.')).toBeVisible();
  const partitions = page.getByRole('region', { name: 'Partitions' });
  await expect(partitions).toHaveCount(1);
  const row = partitions.getByRole('row').last();
  await expect(row).toContainText('nobody');
  await expect(page.getByRole('link', { name: 'Dead letters' })).toBeHidden();
  await expectAccessible(page);

  await page.getByRole('link', { name: 'Try it' }).click();
  await page.getByLabel('Messages', { exact: true }).fill('3');
  await page.getByRole('button', { name: 'Read', exact: true }).click();
  const second = page.getByRole('article', { name: 'Message 0:2' });
  await expect(second.getByRole('button', { name: 'Nack' })).toBeHidden();
  await second.getByRole('button', { name: 'Ack up to here' }).click();
  await expect(second).toContainText('Acknowledged');
  await page.getByRole('button', { name: 'Read', exact: true }).click();
  await expect(page.getByRole('article', { name: 'Message 0:4' })).toBeVisible();

  await page.getByRole('link', { name: 'Overview' }).click();
  await expect(page.getByText('2 messages behind, 2 of them with who reads.')).toBeVisible();
  const cells = row.getByRole('cell');
  // Topic, shard, cursor, next offset, lag, with the reader, oldest, reader.
  await expect(cells).toContainText(['orders', /\d/, '3', '5', '2', '2', /./, 'console']);
  const { config } = JSON.parse((await product.call('GET', '/subscriptions/ledger')).text);
  expect([config.mode, config.start]).toEqual(['stream', 'tail:4']);
  await page.getByRole('link', { name: 'Config' }).click();
  await page.getByLabel('Silence, at most').fill('10s');
  await page.getByRole('button', { name: 'Apply' }).click();
  await expect(page.getByRole('complementary', { name: 'Changes' })).toContainText(
    'Applied. This is version 2.',
  );
});

test('of two pages that read a stream one is given its messages, also when it was loaded anew', async ({
  context,
  page,
  open,
  product,
}) => {
  await product.create('orders');
  await product.publish('orders', '{"n":0}');
  await product.subscribe('ledger', { mode: 'stream', topics: ['orders'] });
  const other = await context.newPage();
  const read = (by: typeof page) => by.getByRole('button', { name: 'Read', exact: true }).click();
  await open('ns/default/subscriptions/ledger/try');
  await other.goto(page.url());
  const message = page.getByRole('article', { name: 'Message 0:0' });
  await read(page);
  await expect(message).toBeVisible();
  await read(other);
  await expect(other.getByText('There was none to be had')).toBeVisible();
  await page.reload();
  await read(page);
  await expect(message).toBeVisible();
});
