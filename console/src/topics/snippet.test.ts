import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { expect, test } from 'vitest';
import { browserSnippet } from './snippet';

test('the snippet is that of the README, which the browser tests run', () => {
  const readme = readFileSync(resolve(import.meta.dirname, '../../../README.md'), 'utf8');
  const shown = readme.split('```js\n')[1]?.split('\n```')[0];
  expect(browserSnippet('ws://127.0.0.1:8080/v1/ws', 'default', 'greetings')).toBe(shown);
});

test('names from the address of the page stay texts: whoever made the link does not say what is run', () => {
  const snippet = browserSnippet('ws://h/v1/ws', "x'});alert(1);({a:'\\", 'orders');
  const sent: unknown[] = [];
  const run = new Function('WebSocket', 'alert', `${snippet}; return socket;`);
  const socket = run(
    class {
      send = (frame: string) => sent.push(JSON.parse(frame));
    },
    () => expect.unreachable(),
  );
  socket.onmessage({ data: '{"t":"welcome"}' });
  expect(sent[0]).toMatchObject({ ns: "x'});alert(1);({a:'\\" });
});

test('a namespace is named where it is not the default', () => {
  expect(browserSnippet('ws://h/v1/ws', 'shop', 'orders').match(/ns: 'shop', topic: 'orders'/g)).toHaveLength(
    2,
  );
});
