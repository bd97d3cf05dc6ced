import { expect, test } from 'vitest';
import { hitPercent, money, segments } from './places';

const storage = {
  cold_to: 40,
  archived_to: 70,
  uploading_to: 90,
  cold_bytes: 4,
  archived_bytes: 3,
  uploading_bytes: 2,
  local_bytes: 1,
  upload_lag_ms: 0,
};

test('offsets are divided by where they are, oldest first', () => {
  expect(segments(10, 100, storage)).toEqual([
    { place: 'cold', from: 10, to: 40, bytes: 4 },
    { place: 'archived', from: 40, to: 70, bytes: 3 },
    { place: 'uploading', from: 70, to: 90, bytes: 2 },
    { place: 'local', from: 90, to: 100, bytes: 1 },
  ]);
});

test('places without messages are left out, also where retention has passed them', () => {
  const found = segments(80, 100, { ...storage, uploading_to: 70 });
  expect(found).toEqual([{ place: 'local', from: 80, to: 100, bytes: 1 }]);
  expect(segments(5, 5, { ...storage, cold_to: 5, archived_to: 5, uploading_to: 5 })).toEqual([]);
});

test('small sums of money keep two digits and none is shown as nothing', () => {
  expect([0, 0.00001, 0.0123, 0.5, 1.234].map(money)).toEqual(['0', '< 0.0001', '0.012', '0.5', '1.23']);
  expect([0.0001, 0.101, 0.999].map(money)).toEqual(['0.0001', '0.1', '1']);
});

test('a share of the cache is 100 % only if it had everything, and none is no share', () => {
  expect(hitPercent(0, 0)).toBe(null);
  expect(hitPercent(0, 12.3)).toBe('0 %');
  expect(hitPercent(9_999, 10_000)).toBe('99.9 %');
  expect(hitPercent(2, 3)).toBe('66.6 %');
  expect(hitPercent(10, 10)).toBe('100 %');
});
