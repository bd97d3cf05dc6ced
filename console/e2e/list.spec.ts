import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { Page } from '@playwright/test';
import { expect, test } from './fixtures';

/** What a shell makes of the text on the clipboard. */
async function pasted(page: Page): Promise<string> {
  const text = await page.evaluate(() => navigator.clipboard.readText());
  expect(text).toMatch(/^curl -sS/);
  const { stdout } = await promisify(execFile)('sh', ['-c', text]);
  return stdout;
}

const names = (page: Page) => page.getByRole('grid').locator('.row-link');

test('rates move while they are looked at', async ({ page, open, product }) => {
  await product.create('busy');
  await product.create('quiet');
  await open();
  const rate = (topic: string) => page.getByRole('row', { name: topic }).locator('.cell').nth(5);
  await expect(page.getByRole('columnheader').nth(5)).toHaveText(/Publish\/s/);
  await expect(rate('busy')).toHaveText('0');
  for (let n = 0; n < 50; n += 1) await product.publish('busy', '{}');
  await expect(rate('busy')).not.toHaveText('0');
  // Nothing is published any more: it falls, and the row says so without being asked. What it shows first may have been
  // read while there was more to come, and be less than what it shows next.
  let peak = 0;
  const fallen = async () => {
    const now = Number(await rate('busy').textContent());
    peak = Math.max(peak, now);
    return peak - now;
  };
  await expect.poll(fallen).toBeGreaterThan(0);
  await expect(rate('quiet')).toHaveText('0');
  await expect(page.getByRole('row', { name: 'busy' }).locator('.cell').nth(3)).toHaveText('50');
});

test('what others create and delete comes and goes by itself', async ({ page, open, product }) => {
  for (const name of ['alpha', 'gamma']) await product.create(name);
  await open();
  await expect(names(page)).toHaveText(['alpha', 'gamma']);
  await product.create('beta');
  await expect(names(page)).toHaveText(['alpha', 'beta', 'gamma']);
  await product.call('DELETE', '/topics/alpha');
  await expect(names(page)).toHaveText(['beta', 'gamma']);
});

test('a click on a head sorts, and another turns the order round', async ({ page, open, product }) => {
  for (const [name, count] of [
    ['alpha', 2],
    ['beta', 5],
    ['gamma', 1],
  ] as const) {
    await product.create(name);
    for (let n = 0; n < count; n += 1) await product.publish(name, '{}');
  }
  await open();
  const head = (label: string) => page.getByRole('columnheader', { name: label });
  const sort = (label: string) => head(label).getByRole('button').click();
  await expect(names(page)).toHaveText(['alpha', 'beta', 'gamma']);
  await expect(head('Name')).toHaveAttribute('aria-sort', 'ascending');
  await sort('Messages');
  await expect(names(page)).toHaveText(['beta', 'alpha', 'gamma']);
  await expect(head('Messages')).toHaveAttribute('aria-sort', 'descending');
  await expect(head('Name')).not.toHaveAttribute('aria-sort');
  await expect(page).toHaveURL(/sort=-messages/);
  await sort('Messages');
  await expect(names(page)).toHaveText(['gamma', 'alpha', 'beta']);
  await expect(head('Messages')).toHaveAttribute('aria-sort', 'ascending');
  await sort('Name');
  await expect(names(page)).toHaveText(['alpha', 'beta', 'gamma']);
  await sort('Name');
  await expect(names(page)).toHaveText(['gamma', 'beta', 'alpha']);
});

test('what is typed is searched for, letter by letter', async ({ page, open, product }) => {
  for (const name of ['orders.created', 'orders.paid', 'payments']) await product.create(name);
  await open();
  await expect(names(page)).toHaveCount(3);
  await page.keyboard.press('/');
  const box = page.getByRole('searchbox', { name: 'Search topics by name' });
  await expect(box).toBeFocused();
  await page.keyboard.type('pa');
  await expect(names(page)).toHaveText(['orders.paid', 'payments']);
  await page.keyboard.type('id');
  await expect(names(page)).toHaveText(['orders.paid']);
  await expect(page.getByRole('status').filter({ hasText: '1 topic' })).toBeVisible();
  await expect(page).toHaveURL(/q=paid/);
  await page.keyboard.type('x');
  await expect(page.getByText('No topic’s name contains “paidx”.')).toBeVisible();
  await page.keyboard.press('Control+a');
  await page.keyboard.press('Delete');
  await expect(names(page)).toHaveCount(3);
  await expect(page).not.toHaveURL(/q=/);
  await expect(box).toBeFocused();
});

test('keys act upon the row that is marked, whatever comes and goes', async ({ page, open, product }) => {
  for (const name of ['beta', 'delta', 'gamma']) await product.create(name);
  await open();
  await expect(names(page)).toHaveCount(3);
  const grid = page.getByRole('grid');
  const marked = page.locator('[data-active]');
  await grid.press('End');
  await expect(marked).toContainText('gamma');
  await product.create('alpha');
  await expect(names(page)).toHaveCount(4);
  await expect(marked).toContainText('gamma');
  // Narrowed down, the mark is on what is left, and Enter opens it.
  await page.getByRole('searchbox').fill('eta');
  await expect(names(page)).toHaveText(['beta']);
  await expect(marked).toContainText('beta');
  await grid.press('Enter');
  await expect(page).toHaveURL(/topics\/beta$/);
});

test('a list is read to its end after a page of it failed', async ({ page, open, product, tolerate }) => {
  tolerate.push(/ERR_FAILED|Failed to load/);
  for (let from = 0; from < 450; from += 50)
    await Promise.all(Array.from({ length: 50 }, (_, n) => product.create(`t-${from + n}`)));
  const second = /\/topics\?.*cursor=/;
  await page.route(second, (route) => route.abort());
  await open('ns/default/topics?sort=-messages');
  await expect(page.getByRole('alert')).toContainText('no connection to the gateway');
  await page.unroute(second);
  await expect(page.getByRole('status').filter({ hasText: /^450 topics$/ })).toBeVisible();
});

test('numbers move also in a list that is sorted by them', async ({ page, open, product }) => {
  // The last by name is on the second page, and the first by number.
  for (let from = 0; from < 250; from += 50)
    await Promise.all(Array.from({ length: 50 }, (_, n) => product.create(`t-${1000 + from + n}`)));
  await product.publish('t-1249', '{}');
  await open('ns/default/topics?sort=-messages');
  await expect(page.getByRole('status').filter({ hasText: /^250 topics$/ })).toBeVisible();
  const messages = page.getByRole('row', { name: 't-1249' }).locator('.cell').nth(3);
  await expect(messages).toHaveText('1');
  await product.publish('t-1249', '{}');
  await expect(messages).toHaveText('2');
});

test('what is typed is searched for, however often the list is rendered', async ({ page, open, product }) => {
  for (const name of ['orders', 'payments']) await product.create(name);
  await open();
  await expect(names(page)).toHaveCount(2);
  // More often than the delay of what is typed is long.
  await page.evaluate(() => {
    const size = [...document.querySelectorAll<HTMLElement>('.sort')].find((head) =>
      head.textContent?.startsWith('Size'),
    );
    setInterval(() => size?.click(), 40);
  });
  await page.getByRole('searchbox').press('p');
  await expect(page).toHaveURL(/q=p/);
  await expect(names(page)).toHaveText(['payments']);
});

test('the list has the focus once it is there after a failure', async ({ page, open, product, tolerate }) => {
  tolerate.push(/ERR_FAILED|Failed to load/);
  await product.create('orders');
  const list = /\/v1\/ns\/default\/topics\?/;
  await page.route(list, (route) => route.abort());
  await open();
  const again = page.getByRole('button', { name: 'Try again' });
  await again.focus();
  await page.unroute(list);
  await again.press('Enter');
  await expect(names(page)).toHaveText(['orders']);
  await expect(page.getByRole('grid')).toBeFocused();
});

test('a name that is taken is said to be, with the way to who has it', async ({
  page,
  open,
  product,
  tolerate,
}) => {
  tolerate.push(/412/);
  await product.create('orders');
  await product.subscribe('billing', { topics: ['orders'] });
  const form = page.getByRole('dialog');
  for (const [path, name] of [
    ['topics?create=true', 'orders'],
    ['subscriptions?create=true&topic=orders', 'billing'],
  ] as const) {
    await open(`ns/default/${path}`);
    await form.getByRole('textbox', { name: 'Name' }).fill(name);
    await form.getByRole('button', { name: /^Create/ }).press('Enter');
    await expect(form.getByRole('alert')).toContainText(`${name} already`);
    // What is typed next is not what was refused.
    await form.getByRole('textbox', { name: 'Name' }).fill('other');
    await form.getByRole('link', { name }).click();
    await expect(page.getByRole('heading', { name })).toBeVisible();
    await expect(form).toHaveCount(0);
  }
});

test('a dialog that is opened while the gateway is away comes when it is back', async ({
  page,
  open,
  product,
  tolerate,
}) => {
  tolerate.push(/ERR_CONNECTION|Failed to load/);
  await product.create('orders');
  await open();
  await expect(names(page)).toHaveCount(1);
  await product.kill();
  await page.keyboard.press('n');
  await expect(page).toHaveURL(/create=true/);
  await expect(page.getByText('Gateway unreachable, retrying')).toBeVisible();
  await product.restart();
  await expect(page.getByRole('dialog', { name: 'Create a topic' })).toBeVisible({ timeout: 15_000 });
});

test('what is copied as curl does in a shell what the page does', async ({ page, open, product }) => {
  await product.create('orders', { partitions: 2 });
  await product.create('other');
  await open('ns/default/topics?q=ord');
  await page.getByRole('button', { name: 'curl' }).click();
  await expect(page.getByRole('button', { name: 'Copied' })).toBeVisible();
  const { items } = JSON.parse(await pasted(page));
  expect(items.map(({ name }: { name: string }) => name)).toEqual(['orders']);

  // A change, with the tag of the version that was seen: it holds once.
  await open('ns/default/topics/orders/config');
  await page.getByLabel('Remove after').fill('2d');
  await page.getByRole('button', { name: 'Copy as curl' }).click();
  await expect(page.getByRole('button', { name: 'Copied' })).toBeVisible();
  expect(JSON.parse(await pasted(page)).config.retention.age_ms).toBe(172_800_000);
  expect(JSON.parse(await pasted(page)).code).toBe('version_mismatch');

  // A message with what a shell would make something of.
  const body = `{"it's":"$(id) \`id\` \\\\ !!","max":18446744073709551615}`;
  await open('ns/default/topics/orders?publish=true');
  const sheet = page.getByRole('dialog', { name: 'Publish a test message' });
  await sheet.getByLabel('Body').fill(body);
  await sheet.getByLabel('Key').fill("o'brien");
  await sheet.getByLabel('Headers').fill('region: "eu" $HOME');
  await sheet.getByRole('button', { name: 'Copy as curl' }).click();
  await expect(sheet.getByRole('button', { name: 'Copied' })).toBeVisible();
  const answer = await pasted(page);
  expect(answer).toMatch(/^HTTP\/1\.1 201 /);
  const place = /^location: \/v1(\S+)/im.exec(answer)?.[1] ?? 'nowhere';
  const stored = await product.call('GET', place);
  expect(stored.text).toBe(body);
  expect(stored.headers.get('message-key')).toBe("o'brien");
  expect(stored.headers.get('message-header-region')).toBe('"eu" $HOME');
});
