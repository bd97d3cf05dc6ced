import { expect, test } from './fixtures';
import { take } from './pictures';

test('quick start', async ({ page, open }) => {
  await open();
  await page.getByRole('heading', { name: 'Welcome to Weir' }).waitFor();
  await take(page, '01-quick-start');
});

test('topics, with every dialog', async ({ page, open, product }) => {
  for (const name of [
    'orders.created',
    'orders.paid',
    'payments.settled',
    'inventory.moved',
    'audit.log',
    'mail.outbox',
  ]) {
    await product.create(name, {
      partitions: name.startsWith('orders') ? 4 : 1,
      ...(name.startsWith('mail') && { default_confirm: 'memory' }),
    });
  }
  for (let i = 0; i < 40; i += 1)
    await product.publish('orders.paid', JSON.stringify({ order: i }), { 'Message-Key': `c${i}` });
  await open();
  await page.getByRole('row', { name: /orders.paid/ }).waitFor();
  await take(page, '02-topics');
  await page.keyboard.press('n');
  await page.getByRole('dialog').waitFor();
  await page.getByRole('textbox', { name: 'Name' }).fill('a topic');
  await page.getByText('Safety, retention and more').click();
  await page.getByLabel('Remove after').fill('7d');
  await take(page, '03-create');
});

test('a topic, with every tab and dialog', async ({ page, open, product }) => {
  await product.create('orders.paid', { partitions: 3, retention: { age_ms: 604_800_000 } });
  for (let i = 0; i < 60; i += 1) {
    await product.publish(
      'orders.paid',
      JSON.stringify({
        order: 9007199254740993n.toString(),
        items: [{ sku: `t-${i}`, qty: i }],
        note: 'gift wrap, please',
      }),
      {
        'Message-Key': `cust-${i % 7}`,
        'Message-Header-region': 'eu-west',
      },
    );
  }
  await product.publish('orders.paid', new Uint8Array([0, 255, 254, 65, 66, 10, 200]), {
    'Content-Type': 'application/octet-stream',
  });
  await open('ns/default/topics/orders.paid');
  await page.getByRole('heading', { name: 'Partitions and offsets' }).waitFor();
  await expect(page.getByRole('region', { name: 'Partitions' })).toHaveCount(1);
  await take(page, '04-overview');
  await page.getByRole('link', { name: 'Messages' }).click();
  await page
    .getByRole('row', { name: /cust-3/ })
    .first()
    .waitFor();
  await take(page, '05-messages');
  await page
    .getByRole('row', { name: /cust-3/ })
    .first()
    .click();
  await page
    .getByRole('complementary', { name: /^Message/ })
    .getByText('"order"')
    .waitFor();
  await take(page, '06-message');
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Live' }).click();
  await page.locator('.live-state', { hasText: /^Live$/ }).waitFor();
  await product.publish('orders.paid', JSON.stringify({ order: 'live' }), { 'Message-Key': 'cust-live' });
  await page.getByRole('row', { name: /cust-live/ }).waitFor();
  await page.getByRole('searchbox', { name: /^Filter/ }).fill('cust-');
  await take(page, '11-live');
  await page.getByRole('button', { name: 'Live' }).click();
  await page.getByRole('link', { name: 'Config' }).click();
  await page.getByLabel('Remove after').fill('2d');
  await page.getByLabel('Closed').check();
  await take(page, '07-config');
  await page.getByRole('button', { name: 'Reset' }).click();
  await page.getByRole('button', { name: 'Publish test' }).click();
  await page
    .getByRole('dialog')
    .getByRole('button', { name: /^Publish/ })
    .click();
  await page.getByRole('heading', { name: /Confirmed at/ }).waitFor();
  await take(page, '08-publish');
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Trim' }).click();
  await page.getByText('The end', { exact: true }).click();
  await page.getByRole('button', { name: 'Preview' }).click();
  await page.getByRole('region', { name: 'Preview', exact: true }).waitFor();
  await take(page, '09-trim');
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('alertdialog').waitFor();
  await take(page, '09-delete');
});

test('failures', async ({ page, open, tolerate }) => {
  tolerate.push(/404/);
  await open('ns/default/topics/nowhere');
  await page.getByRole('alert').waitFor();
  await take(page, '10-no-topic');
});
