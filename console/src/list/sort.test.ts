import { expect, test } from 'vitest';
import { inPlace, sortOf } from './sort';

const rows = (names: string) => [...names].map((name) => ({ name }));
const text = (found: { name: string }[] | null) => found?.map(({ name }) => name).join('') ?? null;

test('rows keep their places while numbers move, and those that went leave none', () => {
  expect(text(inPlace(rows('abc'), ['c', 'a', 'b']))).toBe('cab');
  expect(text(inPlace(rows('ab'), ['c', 'a', 'b']))).toBe('ab');
});

test('a row without a place asks for the order again, also where another one went', () => {
  expect(inPlace(rows('abcd'), ['c', 'a', 'b'])).toBeNull();
  expect(inPlace(rows('abd'), ['c', 'a', 'b'])).toBeNull();
});

test('an address names a column, or none', () => {
  const numbers = { size: () => 0 };
  expect(sortOf('-size', numbers)).toEqual({ key: 'size', descending: true });
  for (const odd of ['nothing', '__proto__', 'toString']) expect(sortOf(odd, numbers).key).toBe('name');
});
