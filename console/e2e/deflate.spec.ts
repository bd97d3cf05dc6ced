import { expect, test } from './fixtures';

test("a page's socket agrees on permessage-deflate, and messages arrive through it", async ({
  page,
  open,
  product,
}) => {
  await product.create('orders');
  await open();
  const url = `${product.url.replace('http', 'ws')}/v1/ws`;
  const { extensions, states } = await page.evaluate(async (url) => {
    const socket = new WebSocket(url, 'weir.v1.json');
    const send = (frame: object) => socket.send(JSON.stringify(frame));
    const states: string[] = [];
    await new Promise<void>((done, fail) => {
      socket.onclose = ({ code }) => fail(new Error(`closed with ${code}`));
      socket.onopen = () => {
        send({ t: 'hello', v: 1 });
        send({ t: 'open', ch: 1, topic: 'orders' });
      };
      socket.onmessage = ({ data }: MessageEvent<string>) => {
        const frame = JSON.parse(data);
        if (frame.t === 'opened') {
          for (let seq = 0; seq < 20; seq += 1)
            send({ t: 'pub', ch: 1, seq, data: { state: `paid ü ${seq} `.repeat(500) } });
          const limit = { msgs: 100, bytes: 1e7 };
          send({ t: 'sub', ch: 2, topic: 'orders', from: 'earliest', limit });
        }
        const came = frame.t === 'msg' ? [frame] : frame.t === 'msgs' ? frame.msgs : [];
        states.push(...came.map((msg: { data: { state: string } }) => msg.data.state));
        if (states.length === 20) done();
      };
    });
    socket.onclose = null;
    socket.close();
    return { extensions: socket.extensions, states };
  }, url);
  expect(extensions).toContain('permessage-deflate');
  expect(states).toEqual(Array.from({ length: 20 }, (_, seq) => `paid ü ${seq} `.repeat(500)));
  const metrics = await (await fetch(`${product.url}/metrics`)).text();
  const counted = (direction: string, size: string) => {
    const name = 'weir_gateway_websocket_deflated_bytes_total';
    const found = metrics.match(
      new RegExp(`^${name}\\{direction="${direction}",size="${size}"\\} (\\d+)$`, 'm'),
    );
    return Number(found?.[1]);
  };
  for (const direction of ['received', 'sent'])
    expect(counted(direction, 'plain')).toBeGreaterThan(10 * counted(direction, 'deflated'));
});
