import { expect, test } from './fixtures';

test('what runs from right to left turns nothing round but itself', async ({ page, open, product }) => {
  await product.create('orders');
  await product.subscribe('billing', { topics: ['orders'] });
  await product.call('POST', '/topics/orders/messages:batch', '{"key":"\\u202eabc","data":1}', {
    'Content-Type': 'application/x-ndjson',
  });
  await open('ns/default/subscriptions/billing/try');
  await page.getByRole('button', { name: 'Lease' }).click();
  const about = page.getByRole('article', { name: 'Message 0:0' }).locator('p.faint');
  await expect(about).toContainText('application/json');
  // Where the first and the last letter of what stands behind the key are.
  const [first, last] = await about.evaluate((paragraph) => {
    const text = paragraph.lastChild as Text;
    return [text.data.indexOf('application'), text.length - 1].map((at) => {
      const range = new Range();
      range.setStart(text, at);
      range.setEnd(text, at + 1);
      return range.getBoundingClientRect().x;
    });
  });
  expect(first).toBeLessThan(last ?? 0);
});
