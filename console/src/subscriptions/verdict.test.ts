import { expect, test } from 'vitest';
import type { Subscription } from '../api/client';
import { flowOf, markOf } from '../subscription/flow';
import { DEFAULTS } from './config';
import { unknownParts, verdict } from './verdict';

type Totals = Subscription['totals'];
type Part = Subscription['parts'][number];
const PART: Part = { topic: 'orders', partition: 0, shard: 1, floor: 0, end: 100, settled_above_floor: 0 };

function subscription(totals: Partial<Totals>, config = {}, parts: Part[] = [PART]): Subscription {
  return {
    ns: 'default',
    name: 'billing',
    id: 7,
    version: 1,
    created_ms: 0,
    topic_incarnation: 1,
    topic_deleted: false,
    topics_deleted: [],
    partitions_left_out: 0,
    config: { ...DEFAULTS, topics: ['orders'], ...config },
    parts,
    totals: {
      unsettled: 0,
      ready: 0,
      leased: 0,
      delayed: 0,
      blocked: 0,
      dead: 0,
      dead_pending: 0,
      ...totals,
    },
  };
}

const LOST: Part = { topic: 'orders', partition: 1, shard: 2, floor: null };

test.each([
  ['unknown', { ready: 5 }, { paused: true }, [PART, LOST]],
  ['paused', { unsettled: 5, ready: 5 }, { paused: true }, undefined],
  ['full', { unsettled: 9, ready: 5, leased: 4 }, { max_unacked: 4 }, [{ ...PART, ready: 5, leased: 4 }]],
  ['not taken', { unsettled: 5, ready: 5 }, {}, undefined],
  ['active', { unsettled: 9, ready: 5, leased: 4 }, {}, undefined],
  ['active', { unsettled: 4, leased: 4 }, { max_unacked: 4 }, undefined],
  ['waiting', { unsettled: 4, delayed: 4 }, {}, undefined],
  ['waiting', { unsettled: 1, dead_pending: 1 }, {}, undefined],
  ['empty', { dead: 3 }, {}, undefined],
] as const)('it is %s with %j and %j', (word, totals, config, parts) => {
  expect(verdict(subscription(totals, config, parts && [...parts])).word).toBe(word);
});

test('a stream is active while somebody reads every partition that has something', () => {
  const stream = { mode: 'stream' as const };
  const read: Part = { ...PART, reader: 'a', ready: 3, leased: 2 };
  const unread: Part = { ...PART, partition: 1, ready: 4, leased: 0 };
  const behind = (parts: Part[], unsettled = 9) => verdict(subscription({ unsettled }, stream, parts));
  expect(behind([read, { ...unread, ready: 0 }]).word).toBe('active');
  expect(behind([read, unread])).toMatchObject({
    word: 'not taken',
    sentence: 'Nobody reads 1 partition: 9 messages behind.',
  });
  expect(behind([PART], 0).word).toBe('empty');
});

test('a limit of leases is of each topic', () => {
  const two = (leased: [number, number]) =>
    verdict(
      subscription(
        { unsettled: 9, ready: 5, leased: leased[0] + leased[1] },
        { topics: ['orders', 'returns'], max_unacked: 4 },
        [
          { ...PART, ready: 5, leased: leased[0] },
          { ...PART, topic: 'returns', ready: 0, leased: leased[1] },
        ],
      ),
    );
  expect(two([2, 2]).word).toBe('active');
  expect(two([0, 4]).word).toBe('active');
  expect(two([4, 1])).toMatchObject({
    word: 'full',
    sentence: expect.stringContaining('All 4 leases of orders'),
  });
});

test('a deleted topic is told apart from shards that cannot be reached', () => {
  const gone = { ...subscription({}, { paused: true }, [LOST]), topic_deleted: true };
  expect(verdict(gone)).toMatchObject({ word: 'no topic', sentence: expect.stringContaining('orders') });
});

test('a sum over what can be reached is told to be one', () => {
  expect(unknownParts(subscription({}, {}, [PART, LOST, { ...LOST, partition: 2 }]))).toBe(2);
  expect(verdict(subscription({}, {}, [PART, LOST])).sentence).toContain('1 partition');
});

test('what was settled between two looks is a rate, and a seek backwards is none', () => {
  const before = markOf(
    subscription({}, {}, [{ ...PART, floor: 10, settled_above_floor: 2, end: 50 }]),
    1000,
  );
  const after = markOf(subscription({}, {}, [{ ...PART, floor: 30, settled_above_floor: 0, end: 60 }]), 3000);
  if (!before || !after) throw new Error('all partitions are known');
  expect(flowOf(before, after)).toEqual({ settled: 9, arrived: 5 });
  expect(flowOf(after, { ...before, at: 5000 })?.settled).toBe(0);
  expect(flowOf(before, { ...after, id: 8 })).toBeUndefined();
  expect(markOf(subscription({}, {}, [PART, LOST]), 0)).toBeUndefined();
});
