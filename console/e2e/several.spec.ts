import { expect, test } from './fixtures';

test('a subscription to two topics says of which each thing is', async ({ page, open, product }) => {
  for (const topic of ['orders', 'returns', 'graveyard']) await product.create(topic);
  for (const topic of ['orders', 'returns']) await product.publish(topic, '{}');
  await product.subscribe('billing', { topics: ['orders', 'returns'], dlq: 'graveyard' });
  const leases = await product.pull('billing', 2);
  await product.queue('billing', 'settle', { dead: leases.map((lease) => ({ lease, reason: 'no stock' })) });

  await open('ns/default/subscriptions/billing?seek=true');
  const seek = page.getByRole('dialog', { name: 'Seek billing' });
  await seek.getByRole('button', { name: 'Preview' }).click();
  const preview = seek.getByRole('region', { name: 'Preview by partition' });
  await expect
    .poll(async () => (await preview.getByRole('rowheader').allTextContents()).sort())
    .toEqual(['orders 0', 'returns 0']);

  await open('ns/default/subscriptions/billing/dead');
  const table = page.getByRole('region', { name: 'Dead letters, newest first' });
  await table.getByRole('checkbox', { name: 'Pick returns:0:0' }).check();
  await expect(table.getByRole('checkbox', { name: 'Pick orders:0:0' })).not.toBeChecked();
  await table.getByRole('link', { name: 'Explain orders:0:0' }).click();
  const why = page.getByRole('dialog', { name: 'Explain a message of billing' });
  await expect(why.getByRole('region', { name: 'Explanation' })).toContainText('orders:0:0 is dead.');
  await page.keyboard.press('Escape');

  // What was picked by hand outlives a dialog that was only looked at.
  await page.getByRole('button', { name: 'Redrive 1' }).click();
  const redrive = page.getByRole('dialog', { name: 'Redrive dead letters of billing' });
  await redrive.getByRole('button', { name: 'Cancel' }).click();
  await expect(redrive).toBeHidden();
  await page.getByRole('button', { name: 'Redrive 1' }).click();
  await redrive.getByRole('button', { name: 'Preview' }).click();
  await redrive.getByRole('button', { name: 'Redrive now' }).click();
  await expect(redrive.getByRole('region', { name: 'Result' })).toContainText('1 message will be');
  const { parts } = JSON.parse((await product.call('GET', '/subscriptions/billing')).text);
  expect(parts).toHaveLength(2);
  expect(parts).toContainEqual(expect.objectContaining({ topic: 'orders', ready: 0 }));
  expect(parts).toContainEqual(expect.objectContaining({ topic: 'returns', ready: 1 }));
  await redrive.getByRole('button', { name: 'Close' }).last().click();
  await expect(page.getByRole('button', { name: 'Redrive dead letters' })).toBeVisible();
});

test('a redrive that is under way is neither changed nor begun twice', async ({ page, open, product }) => {
  await product.create('orders');
  for (let n = 0; n < 20; n += 1) await product.publish('orders', '{}');
  await product.subscribe('billing', { topics: ['orders'] });
  const leases = await product.pull('billing', 20);
  await product.queue('billing', 'settle', { dead: leases.map((lease) => ({ lease })) });
  await open('ns/default/subscriptions/billing/dead');
  await page.getByRole('button', { name: 'Redrive dead letters' }).click();
  const dialog = page.getByRole('dialog', { name: 'Redrive dead letters of billing' });
  const rate = dialog.getByLabel('Messages a second');
  await rate.fill('1');
  await dialog.getByRole('button', { name: 'Preview' }).click();
  await dialog.getByRole('button', { name: 'Redrive now' }).click();
  const stop = dialog.getByRole('button', { name: 'Stop' });
  await expect(stop).toBeVisible();
  await expect(rate).toBeDisabled();
  await expect(dialog.getByRole('button', { name: 'Preview' })).toBeDisabled();
  await stop.click();
  await expect(dialog.getByRole('region', { name: 'Result' })).toBeVisible({ timeout: 10_000 });
  await expect(rate).toBeEnabled();
});
