import { expect, test } from 'vitest';
import { headerLines, keyError } from './outgoing';

test('headers are read in any script, with any sign but a semicolon', () => {
  expect(headerLines('region: eu; city:  Zürich 🏔 ;x: a=b, "c": d;').pairs).toEqual([
    ['region', 'eu'],
    ['city', 'Zürich 🏔'],
    ['x', 'a=b, "c": d'],
  ]);
  expect(headerLines(' ')).toEqual({ pairs: [], error: null });
  expect(headerLines('empty:').pairs).toEqual([['empty', '']]);
});

test.each(['region', 'two words: x', 'a: b; : c', 'a: b\u0007'])('%j is no list of headers', (text) =>
  expect(headerLines(text).error).toContain('region: eu'),
);

test('of one header there is one: the gateway could not tell which is meant', () => {
  expect(headerLines('Region: eu; region: us').error).toBe('There is one region already.');
});

test('a key that would lose its spaces on the way is not sent', () => {
  expect(keyError(' a')).not.toBeNull();
  expect(keyError('a\t')).not.toBeNull();
  expect([keyError(''), keyError('a b')]).toEqual([null, null]);
});
