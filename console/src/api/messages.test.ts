import { afterEach, expect, test, vi } from 'vitest';
import type { Topic } from './client';

vi.hoisted(() => vi.stubGlobal('location', { origin: 'http://weir.test' }));
const { peek, publish, publishRequest } = await import('./messages');

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
