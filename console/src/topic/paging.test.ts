import { expect, test } from 'vitest';
import { olderFrom } from './paging';

const page = (...offsets: number[]) => offsets.map((offset) => ({ offset }));
const full = (oldest: number) => page(...Array.from({ length: 50 }, (_, n) => oldest + 49 - n));

test('a page back is a page back, and none is before the oldest', () => {
  expect(olderFrom('tail:50', full(950), 0, 50)).toBe(900);
  expect(olderFrom('900', full(900), 0, 50)).toBe(850);
  expect(olderFrom('20', full(20), 7, 50)).toBe(7);
  expect(olderFrom('7', full(7), 7, 50)).toBeNull();
  expect(olderFrom('tail:50', [], 0, 50)).toBeNull();
  expect(olderFrom('300', [], 0, 50)).toBe(250);
});

test('of large messages, of which a page has few, none is stepped over', () => {
  expect(olderFrom('tail:50', page(99, 98, 97, 96), 0, 50)).toBe(92);
});

test('what compaction left empty is walked through, however much it is', () => {
  const beyond = full(1000);
  let from = '950';
  const asked: (number | null)[] = [];
  for (let press = 0; press < 5; press += 1) {
    const next = olderFrom(from, beyond, 0, 50);
    asked.push(next);
    from = String(next);
  }
  expect(asked).toEqual([900, 800, 600, 200, 0]);
  expect(olderFrom('0', beyond, 0, 50)).toBeNull();
  // The first offsets of a partition may be empty too.
  expect(olderFrom('earliest', beyond, 0, 50)).toBeNull();
});
