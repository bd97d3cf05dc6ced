import { expect, test } from 'vitest';
import { type Page, renewed } from './pages';

type Row = { name: string; n: number };
const page = (names: string, n: number, next: string | null): Page<Row> => ({
  items: [...names].map((name) => ({ name, n })),
  next,
});
const text = (rows: Row[]) => rows.map(({ name, n }) => name + n).join(' ');

test('a page takes its rows from the last look at it', () => {
  expect(text(renewed(page('bdf', 0, 'f'), undefined))).toBe('b0 d0 f0');
  expect(text(renewed(page('bdf', 0, 'f'), page('bdf', 1, 'f')))).toBe('b1 d1 f1');
});
test('what came pushes others out, which stay as they were', () => {
  expect(text(renewed(page('bdf', 0, 'f'), page('abd', 1, 'd')))).toBe('a1 b1 d1 f0');
});
test('what went is gone', () => {
  expect(text(renewed(page('bdf', 0, 'f'), page('bfg', 1, 'g')))).toBe('b1 f1 g1');
  expect(text(renewed(page('bdf', 0, null), page('b', 1, null)))).toBe('b1');
});
