import { expect, test } from 'vitest';
import { confirmStages, parseServerTiming } from './serverTiming';

const HEADER =
  'gw;dur=0.07, net;dur=0.11, queue;dur=0.38, write;dur=0.04, fsync;dur=0.55, quorum;dur=0, total;dur=1.21, batch;desc="n=187 b=201344"';

test('a publish answer is read in stage order with total and batch', () => {
  const { stages, total, batch } = confirmStages(parseServerTiming(HEADER));
  expect(stages.map(({ name, dur }) => [name, dur])).toEqual([
    ['gw', 0.07],
    ['net', 0.11],
    ['queue', 0.38],
    ['write', 0.04],
    ['fsync', 0.55],
    ['quorum', 0],
  ]);
  expect(total).toBe(1.21);
  expect(batch).toBe('n=187 b=201344');
});

test('commas and quotes inside a description do not end an entry', () => {
  expect(parseServerTiming('a;desc="x, \\"y\\"; z";dur=1, b;DUR=2;dur=3')).toEqual([
    { name: 'a', dur: 1, desc: 'x, "y"; z' },
    { name: 'b', dur: 2, desc: null },
  ]);
});

test.each([null, '', ' , ;dur=1'])('%j has no entries', (header) =>
  expect(parseServerTiming(header)).toEqual([]),
);

test('a duration that is not a number is none', () => {
  expect(parseServerTiming('a;dur=x, b')).toEqual([
    { name: 'a', dur: null, desc: null },
    { name: 'b', dur: null, desc: null },
  ]);
});
