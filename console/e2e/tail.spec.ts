import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Page } from '@playwright/test';
import { expect, expectAccessible, test } from './fixtures';
import type { Product } from './product';

/** With keys they spread over the partitions. */
const lines = (from: number, count: number, keyed: boolean) =>
  Array.from({ length: count }, (_, i) =>
    JSON.stringify({ data: { n: from + i }, ...(keyed && { key: `k${i}` }) }),
  ).join('\n');

const batch = (product: Product, topic: string, from: number, count: number, keyed = false) =>
  product.call('POST', `/topics/${topic}/messages:batch`, lines(from, count, keyed), {
    'Content-Type': 'application/x-ndjson',
  });

const live = (page: Page) => page.locator('.live-state');
const received = (page: Page) => page.locator('.live-count');

test('a tail shows what comes, waits while paused, and goes on without a hole', async ({
  page,
  open,
  product,
}) => {
  await product.create('orders');
  await batch(product, 'orders', 0, 20);
  await open('ns/default/topics/orders/messages');
  await page.getByRole('button', { name: 'Live' }).press('Enter');
  await expect(live(page)).toHaveText('Live');
  const before = Number((await received(page).textContent())?.replace(/\D/g, ''));

  await batch(product, 'orders', 20, 500);
  await expect(received(page)).toHaveText(`${before + 500} received`);
  await expect(page.getByRole('row').filter({ hasText: '"n":519' })).toBeVisible();
  await expectAccessible(page);

  // Paused, nothing is taken: the gateway sends what its credit allows and then waits.
  await page.getByRole('button', { name: 'Pause' }).press('Enter');
  await expect(live(page)).toHaveText('Paused');
  for (let from = 520; from < 3520; from += 500) await batch(product, 'orders', from, 500);
  await expect(page.locator('#credit-text')).toContainText('the gateway waits');
  await expect(page.locator('#credit-text')).toContainText(/^0 of 1,?000 messages/);
  await expect(received(page)).toHaveText(`${before + 500} received`);
  await expectAccessible(page);

  await page.getByRole('button', { name: /^Resume/ }).press('Enter');
  await expect(received(page)).toHaveText(
    new RegExp(`^(newest .* of )?${grouped(before + 3500)}( received)?$`),
  );
  await expect(page.getByRole('row').filter({ hasText: '"n":3519' })).toBeVisible();
  await expect(page.getByText(/missed|no longer/)).toHaveCount(0);
});

test('a tail starts where it is told, and hides what is not looked for', async ({ page, open, product }) => {
  await product.create('orders');
  await batch(product, 'orders', 0, 300);
  await open('ns/default/topics/orders/messages?live=true');
  await expect(live(page)).toHaveText('Live');
  await expect(received(page)).toHaveText('0 received');

  const choose = async (name: string) => {
    await page.getByRole('button', { name: /Start from/ }).press('Enter');
    await page.getByRole('option', { name }).press('Enter');
  };
  await choose('From the last 100');
  await expect(page).toHaveURL(/from=tail(:|%3A)100/);
  await expect(received(page)).toHaveText('100 received');
  await choose('From the earliest');
  await expect(received(page)).toHaveText('300 received');
  // Nothing stands there twice: what was shown before is left out.
  await expect(page.getByRole('grid')).toHaveAttribute('aria-rowcount', '301');
  await expect(page.getByText(/not shown/)).toHaveCount(0);

  await page.getByRole('searchbox', { name: /^Filter/ }).focus();
  await page.keyboard.type('"N":29');
  // 29 and 290 to 299.
  await expect(page.locator('#live-hidden')).toHaveText('289 messages hidden');
  await expect(page.getByRole('grid')).toHaveAttribute('aria-rowcount', '12');
  await batch(product, 'orders', 2900, 5);
  await batch(product, 'orders', 400, 5);
  await expect(page.locator('#live-hidden')).toHaveText('294 messages hidden');
  await expect(page.getByRole('grid')).toHaveAttribute('aria-rowcount', '17');
  await page.keyboard.type('x');
  await expect(page.getByText('No message matches the filter: 310 hidden.')).toBeVisible();
  await expectAccessible(page);
  await page.keyboard.press('Escape');
  await expect(page.getByRole('grid')).toHaveAttribute('aria-rowcount', '311');
});

test('a tail says that its topic is closed, and that it is open again', async ({ page, open, product }) => {
  await product.create('orders', { partitions: 2 });
  await batch(product, 'orders', 0, 3, true);
  await open('ns/default/topics/orders/messages');
  await page.getByRole('button', { name: 'Live' }).press('Enter');
  await expect(live(page)).toHaveText('Live');
  const badge = page.getByRole('status').filter({ hasText: 'Closed: nothing follows' });
  await expect(badge).toHaveCount(0);
  const close = (closed: boolean) =>
    product.call('PATCH', '/topics/orders', JSON.stringify({ closed }), {
      'Content-Type': 'application/json',
    });
  await close(true);
  await expect(badge).toBeVisible();
  await expect(received(page)).toHaveText('0 received');
  const line = page.getByRole('row').filter({ hasText: 'The topic is closed: nothing follows' });
  await expect(line).toBeVisible();
  // The list is walked with the arrow keys, and the line is a row of it.
  await page.getByRole('grid').focus();
  await page.keyboard.press('Home');
  await expect(line).toHaveAttribute('data-active', 'true');
  await expect(page.getByRole('grid')).toHaveAttribute(
    'aria-activedescendant',
    (await line.getAttribute('id')) ?? 'a row has an id',
  );
  await expectAccessible(page);

  await close(false);
  await expect(badge).toHaveCount(0);
  await batch(product, 'orders', 3, 1, true);
  await expect(received(page)).toHaveText('1 received');
  await expect(page.getByRole('row').filter({ hasText: 'The topic is open again' })).toBeVisible();
  await expect(line).toHaveCount(1);
});

test('a tail outlives a crash of the product and marks nothing as missing', async ({
  page,
  open,
  product,
  tolerate,
}) => {
  tolerate.push(/WebSocket connection|Failed to load resource|ERR_CONNECTION/);
  await product.create('orders');
  await open('ns/default/topics/orders/messages');
  await page.getByRole('button', { name: 'Live' }).press('Enter');
  await expect(live(page)).toHaveText('Live');
  await batch(product, 'orders', 0, 50);
  await expect(received(page)).toContainText('50 received');
  await product.kill();
  await expect(live(page)).toContainText('Reconnecting');
  await product.restart();
  await batch(product, 'orders', 50, 50);
  await expect(received(page)).toContainText('100 received', { timeout: 15_000 });
  await expect(received(page)).toContainText('1× reconnected');
  await expect(page.getByText(/missed|no longer/)).toHaveCount(0);
});

test('crashes cost no message of any partition, not even of those that had none', async ({
  page,
  open,
  product,
  tolerate,
}) => {
  tolerate.push(/WebSocket connection|Failed to load resource|ERR_CONNECTION/);
  await product.create('spread', { partitions: 3 });
  await open('ns/default/topics/spread/messages');
  await page.getByRole('button', { name: 'Live' }).press('Enter');
  await expect(live(page)).toHaveText('Live');
  await product.kill();
  // By now it waits seconds between its attempts: these messages are there before it is. A third attempt that failed is
  // followed by the next within a second: who looks once a second may see that one.
  await expect(received(page)).toContainText(/([3-9]|\d\d) attempts failed/);
  await product.restart();
  await batch(product, 'spread', 0, 500, true);
  await expect(received(page)).toContainText('500 received');

  await page.getByRole('button', { name: 'Pause' }).press('Enter');
  for (let from = 500; from < 3500; from += 500) await batch(product, 'spread', from, 500, true);
  await expect(page.locator('#credit-text')).toContainText('the gateway waits');
  await product.kill();
  await expect(live(page)).toContainText('Reconnecting');
  await product.restart();
  await expect(live(page)).toHaveText('Paused');
  await page.getByRole('button', { name: /^Resume/ }).press('Enter');
  await expect(received(page)).toContainText('3,500 received', { timeout: 15_000 });
  await expect(page.getByText(/not shown/)).toHaveCount(0);
});

test('a tail of a topic that is deleted says so', async ({ page, open, product, tolerate }) => {
  tolerate.push(/404/);
  await product.create('brief');
  // The page itself must not learn of it first: only the tail is asked.
  await open('ns/default/topics/brief/messages');
  await page.getByRole('button', { name: 'Live' }).press('Enter');
  await expect(live(page)).toHaveText('Live');
  await page.route('**/v1/ns/default/topics/brief', (route) => route.abort());
  tolerate.push(/ERR_FAILED|Failed to load resource/);
  await product.call('DELETE', '/topics/brief');
  await expect(live(page)).toContainText(/^Ended: /);
  await expectAccessible(page);
});

test('the browser snippet of the README works as it stands', async ({ page, open, product }) => {
  const readme = await readFile(resolve(import.meta.dirname, '../../README.md'), 'utf8');
  const snippet = readme.split('```js\n')[1]?.split('```')[0];
  expect(snippet, 'the README has a snippet').toBeDefined();
  await product.create('greetings');
  await open();
  const said: string[] = [];
  page.on('console', (message) => said.push(message.text()));
  await page.evaluate((snippet ?? '').replaceAll('127.0.0.1:8080', new URL(product.url).host));
  // A delivery waits for no confirm: either may be said first.
  await expect.poll(() => said).toContain('confirmed at quorum offset 0');
  await expect.poll(() => said).toContain('0 hello from the browser');
});

test('the quick start shows a snippet that works where it is shown', async ({ page, open, product }) => {
  await open();
  const snippet = await page.locator('pre', { hasText: 'new WebSocket' }).textContent();
  await product.create('orders');
  const said: string[] = [];
  page.on('console', (message) => said.push(message.text()));
  await page.evaluate(snippet ?? '');
  await expect.poll(() => said).toContain('0 hello from the browser');
});

const grouped = (n: number) => n.toLocaleString('en-US').replace(',', '[,\\u202f\\u00a0 ]?');
