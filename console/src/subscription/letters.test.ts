import { expect, test } from 'vitest';
import { searched } from './letters';

test('what was searched for dead letters is said, and whether there is more', () => {
  const few = { each: null, partitions: 1 };
  expect(searched({ ...few, read: 12, of: 12 })).toEqual({ what: 'all 12 messages', rest: false });
  expect(searched({ ...few, read: 1, of: 1 }).what).toBe('all 1 message');
  expect(searched({ ...few, read: 200, of: 5310 })).toEqual({
    what: 'the newest 200 of 5,310 messages',
    rest: true,
  });
  // A shard that cannot be reached: how many there are is not known.
  expect(searched({ ...few, read: 200, of: null })).toEqual({ what: 'the newest 200 messages', rest: true });
});

test('of many partitions as many of each were searched', () => {
  const many = { each: 4, partitions: 64 };
  expect(searched({ ...many, read: 256, of: 9000 }).what).toBe(
    'the newest 4 of each of 64 partitions, 256 of 9,000 messages,',
  );
  expect(searched({ each: 1, partitions: 1024, read: 1000, of: 2000 }).what).toBe(
    'the newest of each of 1,024 partitions, 1,000 of 2,000 messages,',
  );
});
