import { mkdir } from 'node:fs/promises';
import type { Page } from '@playwright/test';
import { expectAccessible, test } from './fixtures';

// Pictures to be looked at: `WEIR_PICTURES=dir npm run e2e -- looks`. axe does not see overlapping rows.
const DIR = process.env.WEIR_PICTURES ?? 'test-results/pictures';

const SIZES = { wide: { width: 1280, height: 800 }, phone: { width: 375, height: 740 } };

async function take(page: Page, name: string) {
  const dir = `${DIR}/${test.info().project.name}`;
  await mkdir(dir, { recursive: true });
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    for (const [size, viewport] of Object.entries(SIZES)) {
      await page.setViewportSize(viewport);
      await page.waitForTimeout(150);
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (overflow > 0) throw new Error(`${name} scrolls sideways by ${overflow} px at ${size}`);
      const covering = await page.evaluate(() => {
        const parts = [...document.querySelectorAll('.page-head > *, .page > .tabs')];
        const boxes = parts.map((part) => part.getBoundingClientRect()).filter(({ width }) => width > 0);
        return boxes.some((a, i) =>
          boxes
            .slice(i + 1)
            .some(
              (b) => a.left < b.right && b.left < a.right && a.top < b.bottom - 1 && b.top < a.bottom - 1,
            ),
        );
      });
      if (covering) throw new Error(`parts of the head of ${name} lie on each other at ${size}`);
      await page.screenshot({ path: `${dir}/${name}-${colorScheme}-${size}.png` });
    }
  }
  await page.setViewportSize(SIZES.wide);
  await expectAccessible(page);
}

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
  await page.getByText('Live', { exact: true }).first().waitFor();
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
