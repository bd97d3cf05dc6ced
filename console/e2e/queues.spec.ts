import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { Page } from '@playwright/test';
import { deleting, expect, expectAccessible, expectFocusKept, test } from './fixtures';
import { reach } from './keys';

/** What a shell makes of a command. */
const shell = async (text: string, dir?: string) =>
  (await promisify(execFile)('sh', ['-c', text], { cwd: dir })).stdout;

async function pasted(page: Page): Promise<string> {
  const text = await page.evaluate(() => navigator.clipboard.readText());
  expect(text).toMatch(/^curl -sS/);
  return shell(text);
}

const names = (page: Page) => page.getByRole('grid').locator('.row-link');

deleting('a subscription is created, changed and deleted by keyboard', async ({ page, open, product }) => {
  await product.create('orders');
  await product.create('orders.dlq');
  await open('ns/default/subscriptions');
  await expect(page.getByRole('heading', { name: 'Work queues' })).toBeVisible();
  await page.keyboard.press('n');
  const dialog = page.getByRole('dialog', { name: 'Create a subscription' });
  const name = dialog.getByRole('textbox', { name: 'Name' });
  await expect(name).toBeFocused();
  await page.keyboard.type('no spaces');
  await page.keyboard.press('Enter');
  await expect(name).toHaveAttribute('aria-invalid', 'true');
  await page.keyboard.press('Control+a');
  await page.keyboard.type('billing');
  await page.keyboard.press('Tab');
  await page.keyboard.type('nowhere');
  // The list of suggestions closes first.
  await page.keyboard.press('Tab');
  await reach(page, name, 'Shift+Tab');
  await page.keyboard.press('Enter');
  await expect(dialog.getByRole('alert')).toContainText('topic_not_found');
  const topic = dialog.getByLabel('Topics', { exact: true });
  await reach(page, topic);
  await page.keyboard.press('Control+a');
  await page.keyboard.type('orders');
  await reach(page, name, 'Shift+Tab');
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(/\/ns\/default\/subscriptions\/billing$/);
  await expect(page.getByText('Every message is settled.')).toBeVisible();
  await expectFocusKept(page);

  await reach(page, page.getByRole('link', { name: 'Config' }));
  await page.keyboard.press('Enter');
  const review = page.getByRole('complementary', { name: 'Changes' });
  await expect(review).toContainText('None. This is version 1.');
  const lease = page.getByLabel('Lease', { exact: true });
  await reach(page, lease);
  await page.keyboard.press('Control+a');
  await page.keyboard.type('13h');
  await expect(lease).toHaveAttribute('aria-invalid', 'true');
  await page.keyboard.press('Enter');
  await expect(review).toContainText('Correct the marked fields first.');
  await page.keyboard.press('Control+a');
  await page.keyboard.type('5m');
  await reach(page, page.getByLabel('Pauses between attempts'));
  await page.keyboard.press('Control+a');
  await page.keyboard.type('2s, 1m');
  await reach(page, page.getByLabel('Dead letter topic'));
  await page.keyboard.type('orders.dlq');
  await page.keyboard.press('Tab');
  await expect(review).toContainText('backoff_ms');
  await expect(review).toContainText('[2000, 60000]');
  await reach(page, review.getByRole('button', { name: 'Apply 3 changes' }));
  await page.keyboard.press('Enter');
  await expect(review).toContainText('Applied. This is version 2.');
  await expect(review).toBeFocused();
  const { config } = JSON.parse((await product.call('GET', '/subscriptions/billing')).text);
  expect([config.lease_ms, config.backoff_ms, config.dlq]).toEqual([300_000, [2000, 60_000], 'orders.dlq']);

  await reach(page, page.getByRole('button', { name: 'Pause' }), 'Shift+Tab');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('button', { name: 'Resume' })).toBeFocused();
  await expect(page.getByText('paused', { exact: true })).toBeVisible();
  await page.keyboard.press('Enter');
  await expect(page.getByRole('button', { name: 'Pause' })).toBeFocused();

  await reach(page, page.getByRole('button', { name: 'Delete' }), 'Shift+Tab');
  await page.keyboard.press('Enter');
  const remove = page.getByRole('alertdialog');
  await expect(remove.getByRole('button', { name: 'Delete subscription' })).toBeDisabled();
  await page.keyboard.press('Escape');
  await expect(remove).toBeHidden();
  await expect(page.getByRole('button', { name: 'Delete' })).toBeFocused();
  await page.keyboard.press('Enter');
  await page.keyboard.type('billing');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('heading', { name: 'Work queues' })).toBeVisible();
  await expectFocusKept(page);
});

test('an edit of a subscription does not overwrite a faster one', async ({
  page,
  open,
  product,
  tolerate,
}) => {
  tolerate.push(/412/);
  await product.create('orders');
  await product.subscribe('billing', { topics: ['orders'] });
  await open('ns/default/subscriptions/billing/config');
  await page.getByLabel('Attempts', { exact: true }).fill('3');
  const review = page.getByRole('complementary', { name: 'Changes' });
  await expect(review).toContainText('max_attempts');
  await product.call('PATCH', '/subscriptions/billing', '{"lease_ms":5000}', {
    'Content-Type': 'application/json',
  });
  await review.getByRole('button', { name: 'Apply' }).click();
  await expect(review.getByRole('alert')).toContainText('Changed meanwhile');
  await expect(review.getByRole('alert')).toContainText('lease_ms');
  await expectAccessible(page);
  await review.getByRole('button', { name: 'Put mine on top' }).click();
  await review.getByRole('button', { name: 'Apply' }).click();
  await expect(review).toContainText('Applied. This is version 3.');
  const { config } = JSON.parse((await product.call('GET', '/subscriptions/billing')).text);
  expect([config.max_attempts, config.lease_ms]).toEqual([3, 5000]);
});

test('a read that was answered before a change does not undo it', async ({ page, open, product }) => {
  await product.create('orders');
  await product.subscribe('billing', { topics: ['orders'] });
  await open('ns/default/subscriptions/billing/config');
  const review = page.getByRole('complementary', { name: 'Changes' });
  await expect(review).toContainText('None. This is version 1.');
  let release = () => {};
  const changed = new Promise<void>((resolve) => {
    release = resolve;
  });
  await new Promise<void>((read) => {
    void page.route('**/subscriptions/billing', async (route) => {
      if (route.request().method() !== 'GET') return route.continue();
      const response = await route.fetch();
      read();
      await changed;
      await route.fulfill({ response });
    });
  });
  await page.getByLabel('Attempts', { exact: true }).fill('3');
  const dropped = page.waitForEvent('requestfailed', (request) => request.url().endsWith('/billing'));
  await review.getByRole('button', { name: 'Apply' }).click();
  await expect(review).toContainText('Applied. This is version 2.');
  await dropped;
  release();
  // With the tag of the newest version, not of that which was read.
  await page.getByLabel('Attempts', { exact: true }).fill('4');
  await review.getByRole('button', { name: 'Apply' }).click();
  await expect(review).toContainText('Applied. This is version 3.');
});

test('counts move while they are looked at, and sort', async ({ page, open, product }) => {
  for (const topic of ['orders', 'mail']) await product.create(topic);
  await product.subscribe('alpha', { topics: ['orders'] });
  await product.subscribe('beta', { topics: ['mail'] });
  await product.subscribe('gamma', { topics: ['orders'], dlq: null });
  await open('ns/default/subscriptions');
  await expect(names(page)).toHaveText(['alpha', 'beta', 'gamma']);
  const cell = (row: string, column: string) =>
    page
      .getByRole('row', { name: row })
      .locator('.cell')
      .nth(['Name', 'Topic', 'State', 'Depth', 'Ready', 'Leased', 'Delayed', 'Dead'].indexOf(column));
  await expect(cell('alpha', 'State')).toHaveText('empty');
  await product.publishMany('orders', 5);
  await expect(cell('alpha', 'Depth')).toHaveText('5');
  await expect(cell('alpha', 'State')).toHaveText('not taken');
  const [a, b] = await product.pull('alpha', 3);
  await product.queue('alpha', 'settle', {
    dead: [{ lease: a, reason: 'gone' }],
    nack: [{ lease: b, delay_ms: 600_000 }],
  });
  await expect(cell('alpha', 'Dead')).toHaveText('1');
  await expect(cell('alpha', 'Delayed')).toHaveText('1');
  await expect(cell('alpha', 'Leased')).toHaveText('1');
  await expect(cell('alpha', 'Ready')).toHaveText('2');
  await expect(cell('alpha', 'State')).toHaveText('active');
  // Rows keep the place that their numbers gave them when the order was asked for.
  await expect(cell('alpha', 'Depth')).toHaveText('4');
  await expect(cell('gamma', 'Depth')).toHaveText('5');

  await page.getByRole('columnheader', { name: 'Depth' }).getByRole('button').click();
  await expect(names(page)).toHaveText(['gamma', 'alpha', 'beta']);
  await expect(page).toHaveURL(/sort=-depth/);
  await page.keyboard.press('/');
  await expect(page.getByRole('searchbox', { name: 'Search subscriptions by name' })).toBeFocused();
  await page.keyboard.type('m');
  await expect(names(page)).toHaveText(['gamma']);
  await page.reload();
  await expect(names(page)).toHaveText(['gamma']);
});

test('a long list of subscriptions is read page by page', async ({ page, open, product }) => {
  await product.create('orders');
  const name = (n: number) => `sub-${String(n).padStart(4, '0')}`;
  for (let from = 0; from < 450; from += 50) {
    await Promise.all(
      Array.from({ length: 50 }, (_, n) => product.subscribe(name(from + n), { topics: ['orders'] })),
    );
  }
  await open('ns/default/subscriptions');
  await expect(page.getByRole('row', { name: name(0) })).toBeVisible();
  await page.getByRole('grid').press('End');
  await expect(page.getByRole('row', { name: name(449) })).toBeVisible();
  await expect(page.getByRole('status').filter({ hasText: '450 subscriptions' })).toBeVisible();
  expect(await page.getByRole('row').count()).toBeLessThan(100);
});

test('a topic leads to its subscriptions, and they lead back', async ({ page, open, product }) => {
  for (const topic of ['orders', 'mail']) await product.create(topic);
  await product.subscribe('billing', { topics: ['orders'] });
  await product.subscribe('mailer', { topics: ['mail'] });
  await open('ns/default/topics/orders');
  await page.getByRole('navigation', { name: 'Topic' }).getByRole('link', { name: 'Subscriptions' }).click();
  await expect(page.getByRole('row')).toContainText([/Name/, /billing/]);
  await page.getByRole('button', { name: 'Create subscription' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByLabel('Topics', { exact: true })).toHaveValue('orders');
  await dialog.getByRole('textbox', { name: 'Name' }).fill('search');
  await dialog.getByRole('button', { name: 'Create subscription' }).click();
  await expect(page).toHaveURL(/\/subscriptions\/search$/);
  // The address comes first; until the page does, that of the topic is shown, which has a link of that name as well.
  await expect(page.getByRole('heading', { name: 'search' })).toBeVisible();
  await page.getByRole('link', { name: 'Subscriptions' }).last().click();
  await expect(names(page)).toHaveText(['billing', 'mailer', 'search']);
  await open('ns/default/subscriptions?topic=orders');
  await expect(names(page)).toHaveText(['billing', 'search']);
  await page.getByRole('button', { name: /^of topic orders/ }).click();
  await expect(names(page)).toHaveCount(3);
  await page.getByRole('link', { name: 'mailer' }).click();
  await page.getByRole('link', { name: 'mail', exact: true }).first().click();
  await expect(page).toHaveURL(/\/topics\/mail$/);
});

test('a purge is counted, needs the name, and can be taken back', async ({ page, open, product }) => {
  await product.create('orders', { partitions: 2 });
  await product.subscribe('billing', { topics: ['orders'] });
  await product.publishMany('orders', 10);
  const [a, b] = await product.pull('billing', 4, { lease_ms: 600_000 });
  await product.queue('billing', 'settle', {
    dead: [{ lease: a, reason: 'gone' }],
    nack: [{ lease: b, delay_ms: 600_000 }],
  });
  const before = { unsettled: 9, leased: 2, delayed: 1, ready: 6 };
  expect(await product.totals('billing')).toMatchObject(before);
  await open('ns/default/subscriptions/billing');
  await page.getByRole('button', { name: 'Purge' }).press('Enter');
  const dialog = page.getByRole('dialog', { name: 'Purge billing' });
  await expect(dialog.getByRole('button', { name: 'Preview' })).toBeFocused();
  await page.keyboard.press('Enter');
  const preview = dialog.getByRole('region', { name: 'Preview', exact: true });
  await expect(preview).toContainText('9 messages would be settled without being delivered, 1 dead letter');
  expect(await product.totals('billing')).toMatchObject(before);
  // Another choice is another question.
  await dialog.getByText('Dead letters', { exact: true }).click();
  await expect(preview).toBeHidden();
  await dialog.getByRole('button', { name: 'Preview' }).click();
  await expect(preview).toContainText('1 dead letter would be forgotten');
  await dialog.getByText('Everything', { exact: true }).click();
  await dialog.getByRole('button', { name: 'Preview' }).press('Enter');
  await expectAccessible(page);
  const typed = preview.getByRole('textbox', { name: /name to confirm/ });
  await reach(page, typed);
  await page.keyboard.type('billin');
  await page.keyboard.press('Enter');
  await expect(preview.getByRole('button', { name: 'Purge now' })).toBeDisabled();
  expect(await product.totals('billing')).toMatchObject(before);
  await page.keyboard.type('g');
  await page.keyboard.press('Enter');
  await expect(dialog.getByRole('region', { name: 'Result' })).toContainText('10 messages purged, 1 of them');
  await expectFocusKept(page);
  expect(await product.totals('billing')).toMatchObject({ unsettled: 0, leased: 0, ready: 0 });
  expect(JSON.parse((await product.call('GET', '/subscriptions/billing/dlq')).text).items).toEqual([]);

  await reach(page, dialog.getByRole('button', { name: 'Undo the purge' }));
  await page.keyboard.press('Enter');
  await expect(dialog.getByRole('region', { name: 'Result' })).toContainText('stands again');
  await expectFocusKept(page);
  expect(await product.totals('billing')).toMatchObject({ unsettled: 9, leased: 0, delayed: 1, ready: 8 });
  expect(JSON.parse((await product.call('GET', '/subscriptions/billing/dlq')).text).items).toHaveLength(1);
  // The request can be had for a shell, first as a question.
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Purge' }).click();
  await dialog.getByRole('button', { name: 'Copy as curl' }).click();
  await expect(dialog.getByRole('button', { name: 'Copied' })).toBeVisible();
  expect(JSON.parse(await pasted(page))).toMatchObject({ dry_run: true, purged: 10, dead: 1 });
});

test('a stream is purged to its end', async ({ page, open, product }) => {
  await product.create('orders');
  await product.subscribe('ledger', { mode: 'stream', topics: ['orders'] });
  await product.publishMany('orders', 3);
  await open('ns/default/subscriptions/ledger?purge=true');
  const dialog = page.getByRole('dialog', { name: 'Purge ledger' });
  await expect(dialog.getByText('Everything', { exact: true })).toBeHidden();
  await dialog.getByRole('button', { name: 'Preview' }).click();
  await dialog.getByRole('textbox', { name: /name to confirm/ }).fill('ledger');
  await dialog.getByRole('button', { name: 'Purge now' }).click();
  await expect(dialog.getByRole('region', { name: 'Result' })).toContainText('3 messages purged');
  expect(await product.totals('ledger')).toMatchObject({ unsettled: 0 });
});

test('leases say who holds what, and a click shows the message', async ({ page, open, product }) => {
  await product.create('orders');
  await product.subscribe('billing', { topics: ['orders'] });
  await product.publishMany('orders', 130);
  await open('ns/default/subscriptions/billing/leases');
  await expect(page.getByText('Nothing is leased')).toBeVisible();
  await product.pull('billing', 2, { holder: 'worker-7', lease_ms: 600_000 });
  const row = page.getByRole('row', { name: /0:0/ });
  await expect(row).toContainText('worker-7');
  await expect(row).toContainText(/9 min \d+ s more/);
  const left = await row.getByRole('cell').nth(4).textContent();
  await expect(row.getByRole('cell').nth(4)).not.toHaveText(left ?? '');
  await product.pull('billing', 128, { lease_ms: 600_000 });
  await expect(page.getByText('100 messages leased or delayed, on this page')).toBeVisible();
  await page.getByRole('button', { name: 'Next page' }).click();
  await expect(page.getByText('30 messages leased or delayed, on this page')).toBeVisible();
  await expect(page.getByRole('row', { name: /0:129/ })).toContainText('did not say');
  await page.reload();
  await expect(page.getByRole('row', { name: /0:129/ })).toBeVisible();
  await page.getByRole('button', { name: 'First page' }).click();
  await page.getByRole('link', { name: '0:1', exact: true }).click();
  await expect(page.getByRole('complementary', { name: 'Message 0:1' })).toContainText('"n": 1');
  // Looking took nothing.
  expect(await product.totals('billing')).toMatchObject({ leased: 130, ready: 0 });
});

test('a seek says what it would do before it does it', async ({ page, open, product }) => {
  await product.create('orders');
  await product.subscribe('billing', { topics: ['orders'] });
  await product.publishMany('orders', 10);
  const leases = await product.pull('billing', 6);
  await product.queue('billing', 'settle', { ack: leases });
  await open('ns/default/subscriptions/billing');
  await page.getByRole('button', { name: 'Seek' }).press('Enter');
  const dialog = page.getByRole('dialog', { name: 'Seek billing' });
  await dialog.getByText('Offset').click();
  const offset = dialog.getByRole('textbox', { name: 'Offset' });
  await expect(offset).toBeFocused();
  await page.keyboard.type('2');
  await page.keyboard.press('Enter');
  const preview = dialog.getByRole('region', { name: 'Preview', exact: true });
  await expect(preview).toContainText('4 messages that had been delivered');
  await expect(preview).toContainText('0 messages not settled');
  expect(await product.totals('billing')).toMatchObject({ unsettled: 4 });
  // Another target is another question.
  await page.keyboard.type('x');
  await expect(preview).toBeHidden();
  await expect(offset).toHaveAttribute('aria-invalid', 'true');
  await dialog.getByText('Newest').click();
  await dialog.getByRole('button', { name: 'Preview' }).click();
  await expect(preview).toContainText('4 messages not settled so far');
  await dialog.getByText('Oldest').click();
  await dialog.getByRole('button', { name: 'Preview' }).press('Enter');
  await expect(preview).toContainText('6 messages that had been');
  await reach(page, preview.getByRole('button', { name: 'Seek now' }));
  await page.keyboard.press('Enter');
  await expect(dialog.getByRole('region', { name: 'Result' })).toContainText('6 messages will be');
  await expectFocusKept(page);
  expect(await product.totals('billing')).toMatchObject({ unsettled: 10, ready: 10 });
  // And back again, as it stood before.
  await reach(page, dialog.getByRole('button', { name: 'Undo the last seek' }));
  await page.keyboard.press('Enter');
  await expect(preview).toContainText('6 messages not settled so far');
  await reach(page, preview.getByRole('button', { name: 'Undo now' }));
  await page.keyboard.press('Enter');
  await expect(dialog.getByRole('region', { name: 'Result' })).toContainText('6 messages were skipped');
  expect(await product.totals('billing')).toMatchObject({ unsettled: 4, ready: 4 });
  await product.queue('billing', 'seek', { to: 'earliest' });
  await page.keyboard.press('Escape');
  await expect(page.getByText('10 messages ready, and nobody')).toBeVisible();

  // By time, in the zone that is shown.
  await page.getByRole('button', { name: 'Seek' }).click();
  await dialog.getByText('Time', { exact: true }).click();
  await dialog.getByRole('textbox', { name: 'Time, UTC' }).fill('2020-01-01 00:00');
  await dialog.getByRole('button', { name: 'Copy as curl' }).click();
  await expect(dialog.getByRole('button', { name: 'Copied' })).toBeVisible();
  expect(JSON.parse(await pasted(page))).toMatchObject({ dry_run: true, redelivered: 0, skipped: 0 });
});

test('messages are leased and settled by hand', async ({ page, open, product }) => {
  await product.create('orders');
  // Longer than any of this takes: none of them runs out on a busy machine.
  await product.subscribe('billing', { topics: ['orders'], backoff_ms: [0], lease_ms: 600_000 });
  await open('ns/default/subscriptions/billing/try');
  await page.getByRole('button', { name: 'Lease' }).press('Enter');
  await expect(page.getByText('There was none to be had.')).toBeVisible();
  await product.publish('orders', '{"id":18446744073709551615}', { 'Message-Key': 'k' });
  await product.publishMany('orders', 3);
  await page.getByRole('textbox', { name: 'Messages' }).fill('4');
  await page.keyboard.press('Enter');
  const card = (offset: number) => page.getByRole('article', { name: `Message 0:${offset}` });
  await expect(card(0)).toContainText('18446744073709551615');
  await expect(card(0)).toContainText('attempt 1 of 16');
  await expectAccessible(page);
  expect(await product.totals('billing')).toMatchObject({ leased: 4 });

  await card(0).getByRole('button', { name: 'Ack', exact: true }).press('Enter');
  await expect(card(0)).toContainText('Acknowledged');
  await expect(card(0)).toBeFocused();
  await card(1).getByLabel('Pause, of nack').fill('10m');
  await card(1).getByRole('button', { name: 'Nack', exact: true }).click();
  await expect(card(1)).toContainText('Given back');
  await card(2).getByLabel('Reason, of nack and dead').fill('no such customer');
  await card(2).getByRole('button', { name: 'Dead', exact: true }).click();
  await expect(card(2)).toContainText('Given up');
  expect(await product.totals('billing')).toMatchObject({ leased: 1, delayed: 1, dead: 1, unsettled: 2 });
  await card(3)
    .getByRole('button', { name: /^Extend/ })
    .press('Enter');
  await expect(card(3)).toContainText('Extended.');

  // A look at another tab loses nothing; a lease that was settled elsewhere says so.
  await page.getByRole('link', { name: 'Leases' }).click();
  await expect(page.getByRole('row', { name: /0:3/ })).toContainText('console');
  await page.getByRole('link', { name: 'Try it' }).click();
  await card(3).getByRole('button', { name: 'Ack as curl', exact: true }).click();
  await expect(card(3).getByRole('button', { name: 'Copied' })).toBeVisible();
  expect(JSON.parse(await pasted(page)).results[0].result).toBe('ok');
  await card(3).getByRole('button', { name: 'Ack', exact: true }).click();
  await expect(card(3)).toContainText('settled before');
  await page.getByRole('button', { name: 'Clear settled' }).click();
  await expect(page.getByRole('article')).toHaveCount(0);
  await expectFocusKept(page);
});

test('a filter that cannot be read is refused with its place, and one that can holds', async ({
  page,
  open,
  product,
  tolerate,
}) => {
  tolerate.push(/422|400/);
  await product.create('orders');
  await open('ns/default/subscriptions?create=true&topic=orders');
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('textbox', { name: 'Name' }).fill('eu');
  await dialog.getByLabel('Topics', { exact: true }).fill('orders');
  await dialog.getByText('Filter, order').click();
  await dialog.getByLabel('Filter').fill("header.region == 'eu*' or");
  await dialog.getByLabel('Take turns by').fill('header.tenant');
  await dialog.getByLabel('Keep the order of each key').check();
  await dialog.getByRole('button', { name: 'Create subscription' }).click();
  await expect(dialog.getByRole('alert')).toContainText('field filter');
  await dialog.getByLabel('Filter').fill("header.region == 'eu*'");
  await dialog.getByRole('button', { name: 'Create subscription' }).click();
  await expect(page.getByText("header.region == 'eu*', in turns by header.tenant")).toBeVisible();
  for (const region of ['us', 'eu-west', 'eu-west', 'us'])
    await product.publish('orders', '{}', { 'Message-Key': 'k', 'Message-Header-region': region });
  await product.pull('eu', 4, { lease_ms: 600_000 });
  await expect(page.getByText('1 blocked behind others of their key')).toBeVisible();
  expect(await product.totals('eu')).toMatchObject({ leased: 1, blocked: 1 });
});

test('the quick start works as it is written', async ({ page, open, product }, info) => {
  await open('ns/default/subscriptions');
  await expect(page.getByText('Create its topic first')).toBeVisible();
  await expect(page.locator('.snippet pre')).toHaveCount(5);
  const commands = await page.locator('.snippet pre').allTextContents();
  const [topic, subscription, publish, pull, settle] = commands as [string, string, string, string, string];
  await shell(topic);
  await shell(subscription);
  await shell(publish);
  expect(JSON.parse(await shell(pull, info.outputPath('.'))).messages).toHaveLength(1);
  await expect(page.getByRole('row', { name: /workers/ })).toContainText('active');
  expect(JSON.parse(await shell(settle, info.outputPath('.'))).results[0].result).toBe('ok');
  expect(await product.totals('workers')).toMatchObject({ unsettled: 0 });
});

test('a subscription without its topic, and one that is not there, say so', async ({
  page,
  open,
  product,
  tolerate,
}) => {
  tolerate.push(/404|410/);
  await product.create('orders');
  await product.subscribe('billing', { topics: ['orders'] });
  await open('ns/default/subscriptions/billing');
  await expect(page.getByText('Every message is settled.')).toBeVisible();
  await product.call('DELETE', '/topics/orders');
  await expect(page.getByText('What it consumes, orders, was deleted')).toBeVisible();
  await page.getByRole('link', { name: 'Leases' }).click();
  await expect(page.getByRole('alert')).toContainText('incarnation_gone');
  await page.getByRole('link', { name: 'Try it' }).click();
  await page.getByRole('button', { name: 'Lease' }).click();
  await expect(page.getByRole('alert')).toContainText('incarnation_gone');
  await expectAccessible(page);
  await open('ns/default/subscriptions/nowhere');
  await expect(page.getByRole('alert')).toContainText('There is no subscription nowhere');
});

test('a subscription is forked, and the fork says what it began as', async ({
  page,
  open,
  product,
  tolerate,
}) => {
  tolerate.push(/status of 410/);
  await product.create('orders');
  await product.subscribe('work', { mode: 'queue', topics: ['orders'], max_attempts: 3 });
  await open('ns/default/subscriptions/work');
  await expect(page.getByText('begun at earliest')).toBeVisible();
  await page.getByRole('button', { name: 'Fork' }).click();
  const form = page.getByRole('dialog', { name: 'Fork work' });
  await expect(form.getByLabel('Name')).toHaveValue('work-fork');

  // What cannot be is said before anything is sent.
  await form.getByText('Before a seek').click();
  await form.getByLabel('Seek', { exact: true }).fill('yesterday');
  await form.getByRole('button', { name: 'Fork' }).click();
  await expect(form).toContainText('Like snap_00c0ffee00c0ffee');

  // And what the server refuses, in its words.
  await form.getByLabel('Seek', { exact: true }).fill('snap_00c0ffee00c0ffee');
  await form.getByRole('button', { name: 'Fork' }).click();
  await expect(form.getByRole('alert')).toContainText('It was not forked');

  await form.getByText('Now', { exact: true }).click();
  await form.getByLabel('Name').fill('replay');
  await form.getByLabel('Paused').check();
  await form.getByRole('button', { name: 'Fork' }).click();
  await expect(page.getByRole('heading', { name: 'replay' })).toBeVisible();
  await expect(page.getByText('begun as work at now')).toBeVisible();
  await expect(page.getByText('3 attempts')).toBeVisible();
  await expect(page.getByRole('button', { name: 'Resume' })).toBeVisible();
});
