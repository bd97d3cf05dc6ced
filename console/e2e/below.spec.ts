import { createServer, request } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { expect, test } from './fixtures';
import { Product } from './product';

/** What stands before everything where a proxy serves Weir below a path. */
const BASE = '/mq';

/** A proxy that takes the base off, says so, and passes on nothing else; what else was asked for is in `elsewhere`. */
async function proxy(product: Product, elsewhere: string[]) {
  const { hostname, port } = new URL(product.url);
  const below = (url = '') => (url.startsWith(`${BASE}/`) ? url.slice(BASE.length) : null);
  const server = createServer((asked, answer) => {
    const path = below(asked.url);
    if (path === null) {
      elsewhere.push(asked.url ?? '');
      answer.writeHead(404).end();
      return;
    }
    const headers = { ...asked.headers, 'x-forwarded-prefix': BASE };
    const passed = request({ hostname, port, path, method: asked.method, headers }, (told) => {
      answer.writeHead(told.statusCode ?? 502, told.headers);
      told.pipe(answer);
    });
    passed.on('error', () => answer.destroy());
    answer.on('close', () => passed.destroy());
    asked.pipe(passed);
  });
  server.on('upgrade', (asked, socket, head) => {
    const path = below(asked.url);
    if (path === null) {
      elsewhere.push(asked.url ?? '');
      socket.destroy();
      return;
    }
    const onward = connect(Number(port), hostname, () => {
      const lines = Object.entries(asked.headers).map(([name, value]) => `${name}: ${value}\r\n`);
      onward.write(`GET ${path} HTTP/1.1\r\n${lines.join('')}\r\n`);
      onward.write(head);
      socket.pipe(onward).pipe(socket);
    });
    socket.on('error', () => onward.destroy());
    onward.on('error', () => socket.destroy());
  });
  await new Promise<void>((listens) => server.listen(0, '127.0.0.1', listens));
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close };
}

test('below a path of a proxy the console finds its files, the API and its sockets there', async ({
  page,
}, info) => {
  const prefix = info.project.metadata.prefix as string;
  const product = await Product.start(prefix, ['--behind-proxy']);
  const elsewhere: string[] = [];
  const before = await proxy(product, elsewhere);
  try {
    await product.create('orders');
    await product.call('POST', '/topics/orders/messages', 'hello', { 'Content-Type': 'text/plain' });
    const console = `${before.url}${BASE}${prefix}`;
    await page.goto(console);
    await page.getByRole('link', { name: 'orders' }).first().press('Enter');
    await expect(page).toHaveURL(`${console}ns/default/topics/orders`);
    await page.goto(`${console}ns/default/topics/orders/messages`);
    await page.getByRole('button', { name: 'Live' }).press('Enter');
    await expect(page.locator('.live-state')).toHaveText('Live');
    await expect(page.getByRole('row').filter({ hasText: 'hello' })).toBeVisible();
    expect(elsewhere).toEqual([]);
  } finally {
    await page.close();
    before.close();
    await product.remove();
  }
});
