import { deleting, expect, expectFocusKept, test } from './fixtures';

deleting('from nothing to a message and back to nothing, by keyboard alone', async ({ page, open }) => {
  await open();
  await expect(page.getByRole('heading', { name: 'Welcome to Weir' })).toBeVisible();

  await page.keyboard.press('n');
  const name = page.getByRole('dialog').getByRole('textbox', { name: 'Name' });
  await expect(name).toBeFocused();
  await page.keyboard.type('no spaces');
  await page.keyboard.press('Enter');
  await expect(name).toHaveAttribute('aria-invalid', 'true');
  await page.keyboard.press('Control+a');
  await page.keyboard.type('orders.paid');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Control+a');
  await page.keyboard.type('2');
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(/\/ns\/default\/topics\/orders\.paid$/);
  await expect(page.getByText('committed · 2 partitions')).toBeVisible();
  await expectFocusKept(page);

  await page.getByRole('button', { name: 'Publish test' }).focus();
  await page.keyboard.press('Enter');
  const sheet = page.getByRole('dialog', { name: 'Publish a test message' });
  await sheet.getByLabel('Body').focus();
  await page.keyboard.press('Control+a');
  await page.keyboard.type('{"id":18446744073709551615}');
  await page.keyboard.press('Control+Enter');
  await expect(sheet.getByRole('heading', { name: 'Confirmed at quorum' })).toBeVisible();
  const stages = sheet.getByRole('table', { name: /Stages/ });
  for (const stage of ['Gateway', 'Network', 'Queue', 'Write', 'Sync', 'Total']) {
    await expect(stages.getByRole('row', { name: new RegExp(`^${stage}.*\\d ms`) })).toBeVisible();
  }
  await page.keyboard.press('Escape');
  await expect(sheet).toBeHidden();
  await expectFocusKept(page);

  await page.getByRole('link', { name: 'Messages' }).press('Enter');
  // The list is there before what it lists, and Enter opens nothing then.
  await expect(page.getByRole('row').filter({ hasText: '18446744073709551615' })).toBeVisible();
  await page.getByRole('grid').focus();
  await page.keyboard.press('Enter');
  await expect(page.getByRole('complementary', { name: /^Message/ })).toContainText('18446744073709551615');
  await page.keyboard.press('Escape');
  await expect(page.getByRole('grid')).toBeFocused();

  await page.getByRole('button', { name: 'Delete' }).press('Enter');
  const remove = page.getByRole('alertdialog');
  await expect(remove).toContainText('1 message');
  await expect(remove.getByRole('button', { name: 'Delete topic' })).toBeDisabled();
  await page.keyboard.type('orders.paid');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('heading', { name: 'Welcome to Weir' })).toBeVisible();
  await expectFocusKept(page);
});

test('a publish that is under way is not sent again by the keys that sent it', async ({
  page,
  open,
  product,
}) => {
  await product.create('once');
  let release = () => {};
  const answer = new Promise<void>((resolve) => {
    release = resolve;
  });
  let sent = 0;
  await page.route('**/topics/once/messages', async (route) => {
    sent += 1;
    await answer;
    await route.continue();
  });
  await open('ns/default/topics/once?publish=true');
  const sheet = page.getByRole('dialog', { name: 'Publish a test message' });
  await sheet.getByLabel('Body').focus();
  // Held down, the keys repeat, also behind the answer.
  await page.keyboard.down('Control');
  await page.keyboard.down('Enter');
  await page.keyboard.down('Enter');
  await expect(sheet.getByRole('button', { name: /Publishing/ })).toBeDisabled();
  await page.keyboard.up('Enter');
  await page.keyboard.down('Enter');
  release();
  await expect(sheet.getByRole('heading', { name: 'Confirmed at quorum' })).toBeVisible();
  await page.keyboard.down('Enter');
  await page.keyboard.up('Enter');
  expect(sent).toBe(1);
  // Pressed anew, they send another.
  await page.keyboard.press('Enter');
  await page.keyboard.up('Control');
  await expect(sheet.getByRole('link', { name: '1', exact: true })).toBeVisible();
  expect(sent).toBe(2);
});

test('an edit shows its difference and does not overwrite a faster one', async ({
  page,
  open,
  product,
  tolerate,
}) => {
  tolerate.push(/412/);
  await product.create('orders', { retention: { age_ms: 604_800_000 } });
  await open('ns/default/topics/orders/config');
  await page.getByLabel('Remove after').fill('2d');
  const review = page.getByRole('complementary', { name: 'Changes' });
  await expect(review).toContainText('retention.age_ms');
  await expect(review).toContainText('172800000');

  await product.call('PATCH', '/topics/orders', '{"ttl_ms":5000}', { 'Content-Type': 'application/json' });
  await review.getByRole('button', { name: 'Apply' }).click();
  await expect(review.getByRole('alert')).toContainText('Changed meanwhile');
  await expect(review.getByRole('alert')).toContainText('ttl_ms');
  await review.getByRole('button', { name: 'Put mine on top' }).click();
  await review.getByRole('button', { name: 'Apply' }).click();
  await expect(review).toContainText('Applied. This is version 3.');
  const { config } = JSON.parse((await product.call('GET', '/topics/orders')).text);
  expect([config.retention.age_ms, config.ttl_ms]).toEqual([172_800_000, 5000]);
});

test('what is hostile stays text, and digits stay digits', async ({ page, open, product }) => {
  await product.create('hostile');
  const image = '<img src=x onerror=alert(1)>';
  await product.publish('hostile', JSON.stringify({ image }), {
    'Message-Key': image,
    'Message-Header-x': image,
  });
  await product.publish('hostile', '{"max":9223372036854775807,"f":1.10,"big":1e400}');
  await product.publish('hostile', new Uint8Array([255, 254, 0, 65]), { 'Content-Type': 'text/plain' });
  await open('ns/default/topics/hostile/messages?open=0:0');
  const panel = page.getByRole('complementary', { name: /^Message/ });
  await expect(panel.getByText('"image"')).toBeVisible();
  expect(await page.locator('img').count()).toBe(0);
  await open('ns/default/topics/hostile/messages?open=0:1');
  await expect(panel).toContainText('"max": 9223372036854775807');
  await expect(panel).toContainText('1.10');
  await panel.getByRole('button', { name: 'Copy' }).click();
  // The click is over before the clipboard has it.
  await expect
    .poll(() => page.evaluate(() => navigator.clipboard.readText()))
    .toBe('{"max":9223372036854775807,"f":1.10,"big":1e400}');
  await open('ns/default/topics/hostile/messages?open=0:2');
  await expect(panel).toContainText('ff fe 00 41');
});

test('addresses restore what was seen', async ({ page, open, product }) => {
  for (const name of ['alpha', 'beta', 'betamax']) await product.create(name);
  await open('ns/default/topics?q=beta&sort=-name');
  await expect(page.getByRole('row')).toContainText([/Name/, /betamax/, /beta/]);
  await expect(page.getByRole('searchbox')).toHaveValue('beta');
  await page.getByRole('link', { name: 'betamax' }).click();
  await page.getByRole('link', { name: 'Config' }).click();
  await expect(page).toHaveURL(/\/betamax\/config$/);
  await page.reload();
  await expect(page.getByRole('heading', { name: 'Safety' })).toBeVisible();
  await page.goBack();
  await page.goBack();
  await expect(page.getByRole('searchbox')).toHaveValue('beta');
});

test('times are in one zone, the chosen one', async ({ page, open, product }) => {
  await product.create('zones');
  const { headers } = await product.publish('zones', '1');
  const offset = headers.get('location')?.split('/').at(-1);
  const { messages } = JSON.parse((await product.call('GET', `/topics/zones/messages?from=${offset}`)).text);
  const utc = new Date(messages[0].ts).toISOString().slice(0, 23).replace('T', ' ');
  const kolkata = new Date(messages[0].ts + 19_800_000).toISOString().slice(0, 23).replace('T', ' ');
  await open('ns/default/topics/zones/messages');
  await expect(page.getByRole('gridcell', { name: utc })).toBeVisible();
  await page.getByRole('button', { name: 'Time zone' }).click();
  await expect(page.getByRole('gridcell', { name: kolkata })).toBeVisible();
});

test('a gateway that dies is said to be gone, and found again', async ({ page, open, product, tolerate }) => {
  tolerate.push(/ERR_CONNECTION|Failed to load/);
  await product.create('orders');
  await open('ns/default/topics/orders');
  const seen = page.getByRole('heading', { name: 'Partitions and offsets' });
  await expect(seen).toBeVisible();
  await expect(page.getByText('Connected')).toBeVisible();
  await product.kill();
  await expect(page.getByText('Gateway unreachable, retrying')).toBeVisible();
  await expect(seen).toBeVisible();
  // A screen whose code was not loaded yet comes as soon as the gateway is back.
  // Asked for at once: who listens only after the click may hear of the next attempt alone.
  const asked = page.waitForRequest(/config/);
  await page.getByRole('link', { name: 'Config' }).click();
  await asked;
  await expect(page.getByText('Gateway unreachable, retrying')).toBeVisible();
  await product.restart();
  await expect(page.getByText('Connected')).toBeVisible();
  await expect(page.getByRole('heading', { name: 'Safety' })).toBeVisible();
});

test('a page that shows nothing of the gateway says it as well', async ({
  page,
  open,
  product,
  tolerate,
}) => {
  tolerate.push(/ERR_CONNECTION|Failed to load/);
  await open('ns/default/start');
  await expect(page.getByText('Connected')).toBeVisible();
  await product.kill();
  await expect(page.getByText('Gateway unreachable, retrying')).toBeVisible();
  await product.restart();
  await expect(page.getByText('Connected')).toBeVisible();
});

test('a gateway that does not reach storage says so before what was asked of it fails', async ({
  page,
  open,
  product,
  tolerate,
}) => {
  tolerate.push(/503/);
  await product.create('orders');
  await open('ns/default/topics/orders');
  await expect(page.getByText('Connected')).toBeVisible();
  // As a gateway whose node is away answers it; `weir dev` has its node within.
  const problem = { code: 'unavailable', status: 503, title: 'Temporarily unavailable', detail: 'no leader' };
  await page.route('**/readyz', (route) =>
    route.fulfill({ status: 503, contentType: 'application/problem+json', json: problem }),
  );
  await expect(page.getByText('Storage unavailable, retrying')).toBeVisible();
  await page.unroute('**/readyz');
  await expect(page.getByText('Connected')).toBeVisible();
});
