import { expect, expectAccessible, expectFocusKept, test } from './fixtures';
import { reach } from './keys';
import type { Product } from './product';

const bounds = async (product: Product) => {
  const { partitions } = JSON.parse((await product.call('GET', '/topics/orders')).text);
  return partitions.map(({ start, end }: { start: number; end: number }) => [start, end]);
};

async function publishMany(product: Product, count: number) {
  for (let n = 0; n < count; n += 1) await product.publish('orders', `{"n":${n}}`);
}

test('a trim is counted, needs the name, and removes what was shown', async ({ page, open, product }) => {
  await product.create('orders');
  await publishMany(product, 6);
  await open('ns/default/topics/orders');
  await page.getByRole('button', { name: 'Trim' }).press('Enter');
  const dialog = page.getByRole('dialog', { name: 'Trim orders' });
  await expect(dialog).toContainText('This cannot be undone.');
  await expect(dialog.getByRole('textbox', { name: 'Time, UTC' })).toBeFocused();
  await page.keyboard.press('Enter');
  await expect(dialog.getByText('There is nothing to remove.')).toBeVisible();
  await dialog.getByText('An offset').click();
  const offset = dialog.getByRole('textbox', { name: 'Offset' });
  await expect(offset).toBeFocused();
  await page.keyboard.type('4');
  await page.keyboard.press('Enter');
  const preview = dialog.getByRole('region', { name: 'Preview', exact: true });
  await expect(preview).toContainText('4 messages');
  await expectAccessible(page);
  expect(await bounds(product)).toEqual([[0, 6]]);
  const typed = preview.getByRole('textbox', { name: /name to confirm/ });
  await expect(typed).toBeFocused();
  await page.keyboard.type('order');
  await expect(preview.getByRole('button', { name: 'Remove 4 messages' })).toBeDisabled();
  await page.keyboard.type('s');
  await page.keyboard.press('Enter');
  await expect(dialog.getByRole('region', { name: 'Result' })).toContainText('4 messages, ');
  await expect(dialog.getByRole('button', { name: /undo/i })).toHaveCount(0);
  await expectFocusKept(page);
  expect(await bounds(product)).toEqual([[4, 6]]);

  // What is published between the preview and the confirmation stays.
  await dialog.getByText('The end', { exact: true }).click();
  await dialog.getByRole('button', { name: 'Preview' }).click();
  await expect(preview).toContainText('2 messages');
  await publishMany(product, 3);
  await reach(page, typed);
  await page.keyboard.type('orders');
  await page.keyboard.press('Enter');
  await expect(dialog.getByRole('region', { name: 'Result' })).toContainText('2 messages, ');
  expect(await bounds(product)).toEqual([[6, 9]]);
});

test('of several partitions one or all are trimmed, and a refusal is shown', async ({
  page,
  open,
  product,
  tolerate,
}) => {
  tolerate.push(/416|410/);
  await product.create('orders', { partitions: 2 });
  for (let n = 0; n < 12; n += 1) await product.publish('orders', '{}', { 'Message-Key': `k${n}` });
  const [[, first], [, second]] = await bounds(product);
  await open('ns/default/topics/orders?trim=true');
  const dialog = page.getByRole('dialog', { name: 'Trim orders' });
  await dialog.getByText('An offset').click();
  await dialog.getByRole('textbox', { name: 'Offset' }).fill('99');
  await expect(dialog.getByRole('button', { name: 'Preview' })).toBeDisabled();
  await dialog.getByRole('textbox', { name: 'Partition' }).fill('0');
  await dialog.getByRole('button', { name: 'Preview' }).click();
  await expect(dialog.getByRole('alert')).toContainText('beyond_tail');
  await dialog.getByText('The end', { exact: true }).click();
  await dialog.getByRole('textbox', { name: 'Partition' }).fill('');
  await dialog.getByRole('button', { name: 'Preview' }).click();
  const preview = dialog.getByRole('region', { name: 'Preview', exact: true });
  await expect(preview.getByRole('row')).toHaveCount(3);

  // Another topic of that name is not the one that was looked at. The page, which reads it every two seconds, is not to
  // see the moment between the two: it would say that there is none, and nothing could be confirmed any more.
  let release = () => {};
  const made = new Promise<void>((resolve) => {
    release = resolve;
  });
  await new Promise<void>((held) => {
    void page.route('**/v1/ns/default/topics/orders', async (route) => {
      held();
      await made;
      await route.continue();
    });
  });
  await product.call('DELETE', '/topics/orders');
  await product.create('orders', { partitions: 2 });
  for (let n = 0; n < 12; n += 1) await product.publish('orders', '{}', { 'Message-Key': `k${n}` });
  release();
  await dialog.getByRole('textbox', { name: /name to confirm/ }).fill('orders');
  await dialog.getByRole('button', { name: 'Remove 12 messages' }).click();
  await expect(dialog.getByRole('alert')).toContainText('incarnation_gone');
  expect(await bounds(product)).toEqual([
    [0, first],
    [0, second],
  ]);
});

test('a trim that is under way is told of, whatever is changed meanwhile', async ({
  page,
  open,
  product,
}) => {
  await product.create('orders');
  await product.publish('orders', '{}');
  let release = () => {};
  const answer = new Promise<void>((resolve) => {
    release = resolve;
  });
  await page.route(/orders:trim$/, async (route) => {
    await answer;
    await route.continue();
  });
  await open('ns/default/topics/orders?trim=true');
  const dialog = page.getByRole('dialog', { name: 'Trim orders' });
  await dialog.getByText('The end', { exact: true }).click();
  await dialog.getByRole('button', { name: 'Preview' }).click();
  await dialog.getByLabel('Type the topic’s name to confirm').fill('orders');
  await dialog.getByRole('button', { name: 'Remove 1 message' }).click();
  await expect(dialog.getByRole('button', { name: 'Removing …' })).toBeVisible();
  await dialog.getByText('A time', { exact: true }).click();
  await expect(dialog.getByRole('button', { name: 'Preview' })).toBeDisabled();
  release();
  await expect(dialog.getByRole('region', { name: 'Result' })).toContainText('1 message');
});
