import { afterEach, expect, test, vi } from 'vitest';
import type { Topic } from './client';

vi.hoisted(() => vi.stubGlobal('location', { origin: 'http://weir.test' }));
const { asOne, peek, publish, publishRequest, readBody } = await import('./messages');

afterEach(() => vi.restoreAllMocks());

const topic = (partitions: number) =>
  ({
    ns: 'default',
    name: 'big',
    incarnation: 7,
    partitions: Array.from({ length: partitions }, (_, partition) => ({ partition })),
  }) as Topic;

const out = { body: '{}', contentType: 'application/json', key: 'Zoë 😀', headers: [], confirm: '' };

test('a key that is not ASCII is sent in UTF-8, as a terminal does', async () => {
  const asked = vi
    .spyOn(globalThis, 'fetch')
    .mockImplementation(async () => Response.json({ level: 'quorum', final: true }));
  await publish('default', 'orders', out);
  const sent = asked.mock.lastCall?.[0] as Request | undefined;
  const key = sent?.headers.get('Message-Key') ?? '';
  expect(Buffer.from(key, 'latin1').toString('utf8')).toBe('Zoë 😀');
  expect(publishRequest('default', 'orders', out).headers['Message-Key']).toBe('Zoë 😀');
});

test('a body that nobody can decode is read as it is stored', async () => {
  vi.spyOn(globalThis, 'fetch').mockImplementation(async (request) => {
    const { pathname } = new URL((request as Request).url);
    if (!pathname.endsWith('/messages/0/7')) {
      const stored = { partition: 0, offset: 7, data_base64: 'AAH/', content_encoding: 'lz4', headers: {} };
      return Response.json({ messages: [stored], next: 8, up_to_date: true });
    }
    const headers = { 'Content-Type': 'application/problem+json' };
    return Response.json({ code: 'not_acceptable', detail: '' }, { status: 406, headers });
  });
  const { bytes, encoding } = await readBody(topic(1), 0, 7);
  expect([[...bytes], encoding]).toEqual([[0, 1, 255], 'lz4']);
});

/** A gateway that has messages 0 to `end`, and gives at most `most` of them at once. */
function gateway(end: number, most: number) {
  const asked: string[] = [];
  vi.spyOn(globalThis, 'fetch').mockImplementation(async (request) => {
    const { searchParams } = new URL((request as Request).url);
    const from = searchParams.get('from') ?? '';
    asked.push(from);
    const first = from.startsWith('tail:') ? Math.max(0, end - Number(from.slice(5))) : Number(from);
    const next = Math.min(end, first + Math.min(most, Number(searchParams.get('limit'))));
    const messages = Array.from({ length: next - first }, (_, n) => ({
      partition: 0,
      offset: first + n,
      ts: first + n,
      headers: {},
      data: 1,
    }));
    return Response.json({ messages, next, up_to_date: next === end });
  });
  return asked;
}

test('the newest are the newest, also where they do not fit into one answer', async () => {
  const asked = gateway(100, 20);
  const { messages, next, upToDate } = await peek(topic(1), { from: 'tail:50', limit: 50 });
  expect(messages.map(({ offset }) => offset)).toEqual(Array.from({ length: 20 }, (_, n) => 99 - n));
  expect([next.get(0), upToDate]).toEqual([100, true]);
  expect(asked).toEqual(['tail:50', 'tail:20']);
});

test('elsewhere one answer is a page', async () => {
  const asked = gateway(100, 20);
  const { messages, upToDate } = await peek(topic(1), { from: '10', limit: 50 });
  expect([messages[0]?.offset, messages.length, upToDate]).toEqual([29, 20, false]);
  expect(asked).toEqual(['10']);
});

test('of many partitions a few messages of each are one request', async () => {
  const asked: string[] = [];
  vi.spyOn(globalThis, 'fetch').mockImplementation(async (request) => {
    asked.push(new URL((request as Request).url).search);
    const messages = [3, 1, 2].map((n) => ({ partition: n, offset: 9 + n, ts: n, headers: {}, data: 1 }));
    return Response.json({ messages, next: 'b64', up_to_date: true });
  });
  const found = await peek(topic(40), { from: 'tail:50', limit: 50 });
  expect(asked).toEqual(['?from=tail:2&limit=80&max_bytes=4194304&incarnation=7']);
  expect(found.messages.map(({ partition }) => partition)).toEqual([3, 2, 1]);
  expect([found.each, found.next.get(3), found.next.get(0)]).toEqual([2, 13, undefined]);
  await peek(topic(1024), { from: 'earliest', limit: 50 });
  expect(asked[1]).toBe('?from=earliest&limit=1024&max_bytes=4194304&incarnation=7');
  await peek(topic(1024), { from: '5', partition: 3, limit: 50 });
  expect(asked[2]).toBe('?from=5&limit=50&partition=3&incarnation=7');
});

test('of a few partitions the newest of all are found, whichever they are of', async () => {
  const asked: string[] = [];
  vi.spyOn(globalThis, 'fetch').mockImplementation(async (request) => {
    const { searchParams } = new URL((request as Request).url);
    const partition = Number(searchParams.get('partition'));
    asked.push(searchParams.get('from') ?? '');
    // One partition has all that is new.
    const messages = [1, 2].map((n) => ({
      partition,
      offset: n,
      ts: n + 10 * partition,
      headers: {},
      data: 1,
    }));
    return Response.json({ messages, next: 3, up_to_date: true });
  });
  const { messages, each } = await peek(topic(16), { from: 'tail:2', limit: 2 });
  expect(messages.map(({ partition, offset }) => `${partition}:${offset}`)).toEqual(['15:2', '15:1']);
  expect([asked.length, each]).toEqual([16, null]);
});

test('one read of all partitions takes as many of each', () => {
  const at = { from: 'tail:50', limit: 50 };
  expect(asOne(at, 1)).toEqual(at);
  expect(asOne(at, 4)).toEqual({ from: 'tail:13', limit: 52 });
  expect(asOne({ from: 'ts:5', limit: 50 }, 4)).toEqual({ from: 'ts:5', limit: 52 });
  expect(asOne({ ...at, partition: 3 }, 4)).toEqual({ ...at, partition: 3 });
});
