import { expect, test } from 'vitest';
import { type Entry, settledAs, settleOf } from '../subscription/held';
import { deadLetters, groups } from '../subscription/letters';
import { readPulled } from './pulled';

const delivery = (more: string) =>
  `{"id":"2:7","lease":"l_A","fence":9223372036854775807,"attempt":3,"lease_expires_in_ms":500,` +
  `"partition":2,"offset":7,"ts":5,"key":"k","headers":{"a":"b"},${more}}`;

test('a pulled body and its fence keep their digits', () => {
  const data = '{"id":18446744073709551615,"f":1.10}';
  const [held] = readPulled(
    `{"messages":[${delivery(`"content_type":"application/json","data":${data}`)}]}`,
    1000,
  );
  expect(held).toMatchObject({
    body: data,
    fence: '9223372036854775807',
    lease: 'l_A',
    attempt: 3,
    until: 1500,
    message: { partition: 2, offset: 7, key: 'k' },
  });
});

test('text is text, and bytes are shown as bytes', () => {
  const text = `{"messages":[${delivery('"content_type":"text/plain","data":"a\\nb"')},${delivery('"data_base64":"//4A"')}]}`;
  const [first, second] = readPulled(text, 0);
  expect([first?.body, second?.body, second?.message.preview]).toEqual(['a\nb', null, 'ff fe 00']);
  expect(readPulled('{"messages":[]}', 0)).toEqual([]);
});

const [held] = readPulled(`{"messages":[${delivery('"data":1')}]}`, 0);
if (!held) throw new Error('one message was pulled');
const entry: Entry = { held, fate: null, note: null };

test('a lease is settled as it was wished', () => {
  const wish = { reason: 'no stock', delay: null };
  expect(settleOf('ack', 'l_A', wish)).toEqual({ ack: ['l_A'] });
  expect(settleOf('nack', 'l_A', wish)).toEqual({ nack: [{ lease: 'l_A', reason: 'no stock' }] });
  expect(settleOf('nack', 'l_A', { ...wish, delay: 5 })).toEqual({
    nack: [{ lease: 'l_A', reason: 'no stock', delay_ms: 5 }],
  });
  expect(settleOf('dead', 'l_A', wish)).toEqual({ dead: [{ lease: 'l_A', reason: 'no stock' }] });
});

test('only what settled it ends an entry', () => {
  const told = (act: 'ack' | 'extend', result: object) =>
    settledAs(entry, act, { lease: 'l_A', ...result } as never, 100, 30_000);
  expect(told('ack', { result: 'ok' }).fate?.tone).toBe('ok');
  expect(told('extend', { result: 'ok' })).toMatchObject({ fate: null, held: { until: 30_100 } });
  expect(told('ack', { result: 'lease_lost', current: { attempt: 4, fence: 9 } }).fate?.text).toContain(
    'attempt 4',
  );
  expect(told('ack', { result: 'failed', problem: { detail: 'shard 2 has no leader' } })).toMatchObject({
    fate: null,
    note: expect.stringContaining('shard 2 has no leader'),
  });
});

test('dead letters of another subscription are not shown, and reasons are counted', () => {
  const letter = (subscription: string, reason: string) => ({
    ...held.message,
    headers: [
      ['weir-dead-subscription', subscription],
      ['weir-dead-topic', 'orders'],
      ['weir-dead-partition', '1'],
      ['weir-dead-offset', '42'],
      ['weir-dead-attempts', '3'],
      ['weir-dead-reason', reason],
    ] as const,
  });
  const list = deadLetters(
    [letter('billing', 'late'), letter('mail', 'late'), letter('billing', ''), letter('billing', 'late')],
    'billing',
  );
  expect(list.map(({ origin, topic }) => `${topic} ${origin}`)).toEqual(Array(3).fill('orders 1:42'));
  const several = deadLetters([letter('billing', 'late')], 'billing', true);
  expect(several[0]).toMatchObject({ origin: '1:42', message: 'orders:1:42' });
  expect(list[0]?.message).toBe('1:42');
  expect(groups(list)).toEqual([
    { reason: 'late', count: 2 },
    { reason: 'no reason given', count: 1 },
  ]);
});
