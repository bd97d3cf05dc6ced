import { readFile } from 'node:fs/promises';
import type { Locator, Page } from '@playwright/test';
import { deleting, expect, test } from './fixtures';

deleting('a message of a topic made anew is not taken for one of before', async ({ page, open, product }) => {
  const body = () => page.getByRole('complementary', { name: 'Message 0:0' }).locator('.body-text');
  const live = async (life: number) => {
    await product.create('orders');
    await product.publish('orders', `{"life":${life}}`);
  };
  await live(1);
  await open('ns/default/topics/orders/messages');
  await page.getByRole('row', { name: /"life":1/ }).click();
  await expect(body()).toContainText('"life": 1');
  await page.keyboard.press('Escape');
  await product.call('DELETE', '/topics/orders');
  await live(2);
  await page.getByRole('row', { name: /"life":2/ }).click();
  await expect(body()).toContainText('"life": 2');
});

test('a message that was looked for too early is found later', async ({ page, open, product }) => {
  await product.create('orders');
  await open('ns/default/topics/orders/messages?open=0:0');
  const panel = page.getByRole('complementary', { name: 'Message 0:0' });
  await expect(panel).toContainText('There is no message at this offset');
  await product.publish('orders', '{"n":1}');
  await page.getByRole('button', { name: 'Close message' }).click();
  await page.goBack();
  await expect(panel).toContainText('"n": 1');
});

test('a time that is sought is shown in the zone of all others', async ({ page, open, product }) => {
  await product.create('orders');
  const from = Date.UTC(2026, 10, 21, 3, 35, 0, 123);
  await open(`ns/default/topics/orders/messages?from=ts:${from}`);
  await expect(page.getByLabel('Time, UTC')).toHaveValue('2026-11-21 03:35:00.123');
  await page.getByRole('button', { name: /^Time zone/ }).click();
  await expect(page.getByLabel(/^Time, Asia/)).toHaveValue('2026-11-21 09:05:00.123');
  await page.getByRole('button', { name: 'Go' }).click();
  await expect(page).toHaveURL(new RegExp(`from=ts(:|%3A)${from}$`));
  // What is half typed stays as it is.
  await page.getByLabel(/^Time, Asia/).fill('2026-11');
  await page.getByRole('button', { name: /^Time zone/ }).click();
  await expect(page.getByLabel('Time, UTC')).toHaveValue('2026-11');
});

test('an address that somebody wrote by hand is understood', async ({ page, open, product }) => {
  await product.create('orders');
  for (let n = 0; n < 3; n += 1) await product.publish('orders', `{"n":${n}}`);
  await open('ns/default/topics/orders/messages?from=2');
  await expect(page.getByRole('textbox', { name: 'Offset' })).toHaveValue('2');
  await expect(page.getByRole('row', { name: /"n":/ })).toHaveCount(1);
  await open('ns/default/topics?q=0');
  await expect(page.getByText('No topic’s name contains “0”.')).toBeVisible();
});

test('a time that no calendar has is the end, and the page stays', async ({ page, open, product }) => {
  await product.create('orders');
  await open('ns/default/topics/orders/messages?from=ts:9007199254740991');
  await expect(page.getByLabel('Time, UTC')).toHaveValue('9007199254740991');
  await expect(page.getByText('No messages from here on.')).toBeVisible();
  await page.getByText('Newest', { exact: true }).click();
  await expect(page.getByText('No messages yet.')).toBeVisible();
});

test('the keyboard is not lost with the button that it pressed', async ({ page, open, product }) => {
  await product.create('orders');
  await product.publish('orders', `"${'x'.repeat(70_000)}"`);
  await open('ns/default/topics/orders/messages?open=0:0');
  await page.getByRole('button', { name: /^Load body/ }).press('Enter');
  const panel = page.getByRole('complementary', { name: 'Message 0:0' });
  await expect(panel.locator('.body-text')).toBeVisible();
  await expect(panel.getByRole('region', { name: 'Body' })).toBeFocused();
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Live' }).click();
  await expect(page.locator('.live-state')).toHaveText('Live');
  await page.getByRole('button', { name: 'Pause' }).click();
  await page.getByRole('button', { name: 'Skip to newest' }).press('Enter');
  await expect(page.locator('.live-state')).toHaveText('Live');
  await expect(page.getByRole('grid')).toBeFocused();
});

test('who walks through messages with the keyboard stays where he is', async ({ page, open, product }) => {
  await product.create('orders');
  const lines = Array.from({ length: 60 }, (_, n) => JSON.stringify({ data: { n } }));
  await product.call('POST', '/topics/orders/messages:batch', lines.join('\n'), {
    'Content-Type': 'application/x-ndjson',
  });
  await open('ns/default/topics/orders/messages');
  await expect(page.getByRole('row', { name: '"n":59' })).toBeVisible();
  const [older, newer] = ['Older', 'Newer'].map((name) => page.getByRole('button', { name })) as [
    Locator,
    Locator,
  ];
  await older.press('Enter');
  await expect(page).toHaveURL(/from=%220%22$/);
  await expect(page.getByRole('row', { name: '"n":49' })).toBeVisible();
  await expect(older).toBeDisabled();
  await expect(older).toBeFocused();
  await newer.press('Enter');
  await expect(page.getByRole('row', { name: '"n":59' })).toBeVisible();
  await expect(newer).toBeFocused();
  const refresh = page.getByRole('button', { name: 'Refresh' });
  const read = page.waitForResponse(/messages\?/);
  await refresh.press('Enter');
  await read;
  await expect(refresh).toBeEnabled();
  await expect(refresh).toBeFocused();
  await page.getByRole('button', { name: 'Publish test' }).press('Enter');
  const publish = page.getByRole('dialog').getByRole('button', { name: /^Publish/ });
  await publish.press('Enter');
  await expect(page.getByRole('heading', { name: 'Confirmed at quorum' })).toBeVisible();
  await expect(publish).toBeFocused();
});

test('where to look is chosen with the keyboard, which stays there', async ({ page, open, product }) => {
  await product.create('orders');
  for (let n = 0; n < 3; n += 1) await product.publish('orders', `{"n":${n}}`);
  await open('ns/default/topics/orders/messages');
  const choice = (name: string) => page.getByRole('radio', { name });
  await choice('Newest').press('ArrowRight');
  await expect(page).toHaveURL(/from=earliest$/);
  await expect(choice('Oldest')).toBeFocused();
  await page.keyboard.press('ArrowRight');
  await expect(choice('Offset')).toBeFocused();
  const offset = page.getByRole('textbox', { name: 'Offset' });
  await offset.fill('2');
  await offset.press('Enter');
  await expect(page.getByRole('row', { name: '"n":' })).toHaveCount(1);
  await expect(offset).toBeFocused();
  await page.goBack();
  await expect(choice('Oldest')).toBeChecked();
  await expect(page.getByRole('row', { name: '"n":' })).toHaveCount(3);
});

test('another partition is followed from where the first was', async ({ page, open, product }) => {
  await product.create('orders', { partitions: 2 });
  await open('ns/default/topics/orders/messages?live=true&from=earliest');
  await expect(page.locator('.live-state')).toHaveText('Live');
  await page.getByRole('button', { name: /Partition$/ }).click();
  await page.getByRole('option', { name: 'Partition 1' }).click();
  await expect(page).toHaveURL(/partition=1/);
  await expect(page.getByRole('button', { name: /Start from/ })).toContainText('From the earliest');
});

test('a tail whose code cannot be loaded says so', async ({ page, open, product, tolerate }) => {
  tolerate.push(/ERR_FAILED|Failed to load/);
  await product.create('orders');
  await page.route('**/tail.worker*', (route) => route.abort());
  await open('ns/default/topics/orders/messages?live=true');
  await expect(page.locator('.live-state')).toContainText(/^Ended: /);
});

test('a body is never that of another life of its topic', async ({ page, open, product, tolerate }) => {
  tolerate.push(/410/);
  await product.create('orders');
  await product.publish('orders', '{"life":1}');
  await open('ns/default/topics/orders/messages');
  const row = page.getByRole('row', { name: /"life":1/ });
  await expect(row).toBeVisible();
  // The page, which reads its topic every two seconds, is not to learn of the next life first.
  await page.route('**/v1/ns/default/topics/orders', () => {});
  await product.call('DELETE', '/topics/orders');
  await product.create('orders');
  await product.publish('orders', '{"life":2}');
  await row.click();
  const body = page.getByRole('region', { name: 'Body' });
  await expect(body.getByRole('alert')).toContainText('incarnation_gone');
  await expect(body).not.toContainText('"life": 2');
});

test('a topic of many partitions is looked at with one request', async ({ page, open, product }) => {
  await product.create('wide', { partitions: 40 });
  for (let n = 0; n < 60; n += 1) await product.publish('wide', `{"n":${n}}`, { 'Message-Key': `k${n}` });
  const asked: string[] = [];
  page.on('request', (request) => {
    if (/\/messages\?/.test(request.url())) asked.push(request.url());
  });
  await open('ns/default/topics/wide/messages');
  await expect(page.getByRole('row', { name: '"n":59' })).toBeVisible();
  await expect(page.getByText('the newest, up to 2, of each of 40 partitions')).toBeVisible();
  expect(asked).toHaveLength(1);
  const field = page.getByRole('textbox', { name: 'Partition' });
  await field.fill('40');
  await field.press('Enter');
  await expect(page.getByRole('alert')).toHaveText('A number from 0 to 39, or nothing for all.');
  await field.fill('1');
  await field.press('Enter');
  await expect(page).toHaveURL(/partition=1$/);
  await expect(page.getByText('Choose a partition')).toHaveCount(0);
  await expect(field).toBeFocused();
  expect(asked).toHaveLength(2);
});

test('a body that nobody can decode is shown and downloaded as it is stored', async ({
  page,
  open,
  product,
  tolerate,
}) => {
  tolerate.push(/406/);
  await product.create('orders');
  await product.publish('orders', 'packed', { 'Content-Type': 'text/plain', 'Content-Encoding': 'x-packed' });
  await open('ns/default/topics/orders/messages?open=0:0');
  const body = page.getByRole('region', { name: 'Body' });
  await expect(body).toContainText('It is encoded as x-packed');
  await expect(body).toContainText('packed');
  const saved = page.waitForEvent('download');
  await body.getByRole('button', { name: 'Download' }).click();
  const download = await saved;
  expect(download.suggestedFilename()).toBe('orders-0-0');
  expect(await readFile(await download.path(), 'utf8')).toBe('packed');
});

test('a tab that was duplicated takes messages under a name of its own', async ({ page, open, context }) => {
  await open('ns/default/subscriptions');
  const name = (tab: Page) => tab.evaluate(() => sessionStorage.getItem('weir.console.holder'));
  await expect.poll(() => name(page)).toMatch(/^console-/);
  const first = await name(page);
  const opened = context.waitForEvent('page');
  // A tab that a page opens has a copy of its storage, as one that is duplicated has.
  await page.evaluate(() => void window.open(location.href));
  const copy = await opened;
  await expect.poll(() => name(copy)).not.toBe(first);
  expect(await name(page)).toBe(first);
  await page.reload();
  // Each has the lock of its own again.
  const held = () =>
    page.evaluate(async () => (await navigator.locks.query()).held?.map((lock) => lock.name));
  const locks = [first, await name(copy)].map((holder) => `weir.console.holder:${holder}`).sort();
  await expect.poll(async () => (await held())?.sort()).toEqual(locks);
  expect(await name(page)).toBe(first);
});
