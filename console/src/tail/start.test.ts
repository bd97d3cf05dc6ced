import { describe, expect, test } from 'vitest';
import type { Peek } from '../api/messages';
import { sift } from './filter';
import type { Message } from './message';
import type { Gap } from './session';
import { liveStart, targetOf } from './start';

describe('start of a tail', () => {
  const page: Peek = {
    messages: [],
    next: new Map([
      [0, 7],
      [1, 9],
    ]),
    upToDate: true,
    each: null,
  };
  const followed = { ns: 'default', topic: 't', partitions: 2, partition: undefined };

  test('now goes on behind the page, of several partitions at the end', () => {
    expect(targetOf({ ...followed, partition: 1 }, 'now', page)).toMatchObject({ from: '9', only: 1 });
    expect(targetOf(followed, 'now', page)).toMatchObject({
      from: 'latest',
      known: [
        [0, 7],
        [1, 9],
      ],
      only: null,
    });
  });
  test('elsewhere knows nothing of the page', () => {
    for (const start of ['earliest', 'tail:100'] as const) {
      expect(targetOf(followed, start, page)).toMatchObject({ from: start, known: [], only: null });
    }
  });
  test('an address that names no start of a tail means now', () => {
    expect([undefined, 'earliest', 'tail:100', 'tail:50', '12', 'x'].map(liveStart)).toEqual([
      'now',
      'earliest',
      'tail:100',
      'now',
      'now',
      'now',
    ]);
  });
});

describe('filter of a tail', () => {
  const message = (offset: number, more: Partial<Message> = {}): Message => ({
    kind: 'message',
    partition: 0,
    offset,
    ts: 0,
    key: null,
    headers: [],
    contentType: null,
    encoding: null,
    preview: `{"n":${offset}}`,
    size: 1,
    ...more,
  });
  const gap: Gap = { kind: 'gap', partition: 0, from: 3, to: 5, why: 'missed' };

  test('keeps what holds the text in key, header or body, and counts the rest', () => {
    const rows = [
      message(0, { key: 'Cust-42' }),
      message(1, { headers: [['region', 'CUST-1']] }),
      message(2, { preview: 'a customer, ß' }),
      gap,
      message(5),
    ];
    const { rows: kept, hidden } = sift(rows, ' cust');
    expect(kept).toEqual([rows[0], rows[1], rows[2], gap]);
    expect(hidden).toBe(1);
    expect(sift(rows, 'region: cust').rows).toEqual([rows[1], gap]);
  });
  test('nothing to look for hides nothing', () => {
    expect(sift([message(0), gap], '  ')).toEqual({ rows: [message(0), gap], hidden: 0 });
  });
  test('parts are not read as one', () => {
    expect(sift([message(0, { key: 'ab', preview: 'cd' })], 'bc').hidden).toBe(1);
  });
  test('signs that mean something elsewhere are only signs', () => {
    expect(sift([message(0), message(1, { preview: '.*' })], '.*').rows).toEqual([
      message(1, { preview: '.*' }),
    ]);
  });
});
