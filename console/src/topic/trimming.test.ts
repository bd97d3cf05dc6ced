import { expect, test } from 'vitest';
import { wishOf } from './trimming';

const typed = { ms: 5, offset: ' 7 ', partition: '' };

test('what was typed becomes what is asked for', () => {
  expect(wishOf('time', typed, 3).wish).toEqual({ before: 'ts:5' });
  expect(wishOf('time', { ...typed, partition: '2' }, 3).wish).toEqual({ before: 'ts:5', partition: 2 });
  expect(wishOf('offset', typed, 1).wish).toEqual({ before: '7' });
  expect(wishOf('end', { ms: null, offset: 'x', partition: '' }, 3).wish).toEqual({ before: 'end' });
});

test('an offset belongs to one partition, which is there', () => {
  expect(wishOf('offset', typed, 3)).toEqual({ wish: null, errors: { partition: 'Say which.' } });
  expect(wishOf('offset', { ...typed, partition: '3' }, 3).errors.partition).toBe('A number from 0 to 2.');
  expect(wishOf('end', { ...typed, partition: '-1' }, 3).wish).toBeNull();
});

test('what cannot be read is not asked for', () => {
  expect(wishOf('time', { ...typed, ms: null }, 1).errors.time).toBe('Like 2026-01-31 14:05:00');
  for (const offset of ['', '1.5', 'end', '12345678901234567']) {
    expect(wishOf('offset', { ...typed, offset }, 1).errors.offset).toBe('An offset is a number.');
  }
});
