import { test } from './fixtures';
import { take } from './pictures';

test('queue quick start', async ({ page, open }) => {
  await open('ns/default/subscriptions');
  await page.getByRole('heading', { name: 'Work queues' }).waitFor();
  await page.getByText('Publish some work').waitFor();
  await take(page, '20-queue-start');
});

test('subscriptions, with every tab and dialog', async ({ page, open, product }) => {
  await product.create('orders.paid', { partitions: 3 });
  await product.create('orders.dlq');
  await product.create('mail.outbox');
  for (let i = 0; i < 40; i += 1) {
    const order = { order: 1000 + i, items: [{ sku: `t-${i}`, qty: 2 }], note: 'gift wrap, please' };
    await product.publish('orders.paid', JSON.stringify(order), {
      'Message-Key': `cust-${i % 7}`,
      'Message-Header-region': 'eu-west',
    });
  }
  await product.subscribe('billing', {
    topics: ['orders.paid'],
    dlq: 'orders.dlq',
    max_attempts: 8,
    backoff_ms: [600_000],
  });
  await product.subscribe('search-index', { topics: ['orders.paid'] });
  await product.subscribe('audit-copy', { topics: ['orders.paid'], paused: true });
  await product.subscribe('mailer', { topics: ['mail.outbox'] });
  const [a, b, c, ...others] = await product.pull('billing', 9, { holder: 'worker-7', lease_ms: 600_000 });
  await product.pull('billing', 3, { lease_ms: 900_000 });
  await product.queue('billing', 'settle', {
    dead: [a, b, others[0]].map((lease, i) => ({ lease, reason: i < 2 ? 'no such customer' : 'over limit' })),
    nack: [{ lease: c, reason: 'no stock' }],
    ack: [others[1]],
  });
  await open('ns/default/subscriptions');
  await page.getByRole('row', { name: /billing/ }).waitFor();
  await take(page, '21-subscriptions');
  await page.keyboard.press('n');
  await page.getByRole('dialog').waitFor();
  await page.getByRole('textbox', { name: 'Name' }).fill('a name');
  await page.getByText('Leases, retries and dead letters').click();
  await take(page, '22-subscription-create');
  await page.keyboard.press('Escape');
  await page.getByRole('link', { name: 'billing' }).click();
  await page.getByRole('heading', { name: 'What waits' }).waitFor();
  await page.getByText('come in').waitFor();
  await take(page, '23-subscription');
  await page.getByRole('link', { name: 'Leases' }).click();
  await page.getByText('worker-7').first().waitFor();
  await take(page, '24-leases');
  await page.getByRole('link', { name: 'Dead letters' }).click();
  await page.getByRole('heading', { name: 'Why' }).waitFor();
  await page.getByRole('button', { name: 'no such customer 2' }).click();
  await take(page, '25-dead');
  await page.getByRole('checkbox', { name: 'Pick all' }).check();
  await page.getByRole('button', { name: 'Redrive 2' }).click();
  await page.getByRole('button', { name: 'Preview' }).click();
  await page.getByRole('region', { name: 'Preview' }).waitFor();
  await take(page, '25-redrive');
  await page.keyboard.press('Escape');
  await page
    .getByRole('link', { name: /^Explain/ })
    .first()
    .click();
  await page.getByRole('region', { name: 'Explanation' }).waitFor();
  await take(page, '25-explain');
  await page.keyboard.press('Escape');
  await page.getByRole('link', { name: 'Try it' }).click();
  await page.getByLabel('Messages').fill('2');
  await page.getByRole('button', { name: 'Lease' }).click();
  await page.getByRole('article').nth(1).waitFor();
  await page.getByRole('article').first().getByRole('button', { name: 'Ack', exact: true }).click();
  await page.getByText('Acknowledged').waitFor();
  await take(page, '26-try');
  await page.getByRole('link', { name: 'Config' }).click();
  await page.getByLabel('Lease', { exact: true }).fill('5m');
  await page.getByLabel('Pauses').fill('1s, 5s, 1m');
  await take(page, '27-subscription-config');
  await page.getByRole('button', { name: 'Reset' }).click();
  await page.getByRole('button', { name: 'Seek' }).click();
  await page.getByText('Time', { exact: true }).click();
  await page.getByRole('button', { name: 'Preview' }).click();
  await page.getByRole('region', { name: 'Preview', exact: true }).waitFor();
  await take(page, '28-seek');
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Purge' }).click();
  await page.getByRole('button', { name: 'Preview' }).click();
  await page.getByRole('region', { name: 'Preview', exact: true }).waitFor();
  await take(page, '28-purge');
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('alertdialog').waitFor();
  await take(page, '29-subscription-delete');
  await page.keyboard.press('Escape');
  await open('ns/default/topics/orders.paid/subscriptions');
  await page.getByRole('link', { name: 'billing' }).waitFor();
  await take(page, '30-topic-subscriptions');
});
