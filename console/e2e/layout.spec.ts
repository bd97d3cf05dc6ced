import type { Locator, Page } from '@playwright/test';
import { expect, test } from './fixtures';

/** Upper edges of what is found, in whole pixels, each once. */
const tops = async (found: Locator) =>
  new Set(await found.evaluateAll((all) => all.map((one) => Math.round(one.getBoundingClientRect().top))));

/** Where the text of each head stands. */
const headLines = (page: Page) =>
  page.getByRole('columnheader').evaluateAll((heads) =>
    heads.map((head) => {
      const range = document.createRange();
      const walker = document.createTreeWalker(head, NodeFilter.SHOW_TEXT);
      range.selectNodeContents(walker.nextNode() ?? head);
      return Math.round(range.getBoundingClientRect().bottom);
    }),
  );

test('fields of a line stand in line, however long their labels are', async ({ page, open, product }) => {
  await product.create('orders');
  await open('ns/default/topics/orders/config');
  const line = (label: string) => page.locator('.fields', { has: page.getByLabel(label) });
  await expect(page.getByLabel('Remove after')).toBeVisible();
  expect((await tops(line('Remove after').locator('input:not([type=checkbox])'))).size).toBe(1);
  expect((await tops(line('Time to live in queues').locator('input'))).size).toBe(1);
  expect((await tops(line('Confirm publishes at').locator('.select'))).size).toBe(1);
});

test('what can be done with a topic is one line of a telephone', async ({ page, open, product }) => {
  await product.create('orders');
  await page.setViewportSize({ width: 390, height: 800 });
  await open('ns/default/topics/orders');
  await expect(page.getByRole('button', { name: 'Publish test' })).toBeVisible();
  const todo = page.locator('.page-head > button');
  expect(await todo.count()).toBe(5);
  expect((await tops(todo)).size).toBe(1);
});

test('a name of any length is read whole', async ({ page, open, product }) => {
  const name = 'n'.repeat(255);
  await product.create(name);
  await product.publish(name, '{}');
  await product.subscribe(name, { topics: [name] });
  const isWhole = async (found: Locator) =>
    expect(await found.evaluate((one) => one.scrollWidth - one.clientWidth)).toBe(0);
  for (const width of [360, 1280]) {
    await page.setViewportSize({ width, height: 800 });
    await open(`ns/default/subscriptions/${name}?purge=true`);
    await page.getByRole('button', { name: 'Preview' }).click();
    const typed = page.getByRole('textbox', { name: /name to confirm/ });
    await expect(typed).toBeVisible();
    await isWhole(page.locator('.sheet'));
    await isWhole(page.locator('.page-head'));
    await open(`ns/default/topics/${name}?delete=true`);
    await expect(typed).toBeVisible();
    await isWhole(page.locator('.sheet'));
  }
});

test('a list is read without guessing: heads in line, nothing that matters cut', async ({
  page,
  open,
  product,
}) => {
  await product.create('audit.log', { closed: true });
  await open();
  await expect(page.getByRole('row', { name: /audit.log/ })).toBeVisible();
  expect(new Set(await headLines(page)).size).toBe(1);
  const tier = page.getByRole('row', { name: /audit.log/ }).locator('.cell', { hasText: 'closed' });
  expect(await tier.evaluate((cell) => cell.scrollWidth - cell.clientWidth)).toBeLessThanOrEqual(0);
  await page.keyboard.press('n');
  await expect(page.getByRole('dialog')).toBeVisible();
  await expect(page.locator('.overlay')).toHaveCSS('border-top-width', '0px');
});

test('dead letters with long reasons and bodies can be explained without scrolling', async ({
  page,
  open,
  product,
}) => {
  await product.create('orders.paid');
  await product.create('orders.dlq');
  await product.publish('orders.paid', JSON.stringify({ note: 'gift wrap, please '.repeat(9) }), {
    'Message-Key': 'cust-1234',
  });
  await product.subscribe('billing', { topics: ['orders.paid'], dlq: 'orders.dlq' });
  const [lease] = await product.pull('billing', 1);
  const reason = 'the account is over its limit for today, and was over it yesterday';
  await product.queue('billing', 'settle', { dead: [{ lease, reason }] });
  await open('ns/default/subscriptions/billing/dead');
  await expect(page.getByRole('link', { name: /^Explain/ })).toBeInViewport({ ratio: 1 });
  await expect(page.getByRole('cell', { name: reason })).toHaveAttribute('title', reason);
  await page.getByRole('checkbox', { name: 'Pick all' }).check();
  await page.getByRole('button', { name: 'Redrive 1' }).press('Enter');
  await expect(page.getByText('1 picked message.')).toBeVisible();
  expect((await tops(page.getByRole('dialog').locator('input'))).size).toBe(1);
});

test('the tab that is shown is seen, and what acts in a dialog is on the right', async ({
  page,
  open,
  product,
}) => {
  await page.setViewportSize({ width: 375, height: 740 });
  await product.create('orders');
  await product.subscribe('billing', { topics: ['orders'] });
  await open('ns/default/subscriptions/billing/config');
  await expect(page.getByRole('link', { name: 'Config' })).toBeInViewport({ ratio: 1 });
  await open('ns/default/topics?create=true');
  const right = (name: string) =>
    page
      .getByRole('dialog')
      .getByRole('button', { name })
      .evaluate((button) => Math.round(button.getBoundingClientRect().right));
  expect(await right('Create topic')).toBe(await right('Cancel'));
});
