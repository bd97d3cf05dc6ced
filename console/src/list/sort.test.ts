import { expect, test } from 'vitest';
import { inPlace } from './sort';

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
