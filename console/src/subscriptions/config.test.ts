import { describe, expect, test } from 'vitest';
import { changes, patchOf, rebase } from '../edit/changes';
import { asStream, DEFAULTS, draftOf, parseBackoff, readDraft } from './config';

const billing = { ...DEFAULTS, topics: ['orders'], dlq: 'orders.dlq', max_attempts: 8 };

describe('configuration form of a subscription', () => {
  test('an untouched form changes nothing', () => {
    const odd = {
      ...billing,
      lease_ms: 1001,
      backoff_ms: [0, 1, 86_400_001],
      max_attempts: 0,
      dlq: null,
      filter: " key == 'a'",
    };
    const { config, errors } = readDraft(draftOf(odd), odd);
    expect(errors).toEqual({});
    expect(changes(odd, config)).toEqual([]);
  });
  test('a stream is asked for without anything that only queues have', () => {
    const typed = { ...billing, order: 'key' as const, start: 'tail:5', lease_ms: 60_000 };
    expect(patchOf(changes(DEFAULTS, asStream(typed)))).toEqual({
      mode: 'stream',
      topics: ['orders'],
      start: 'tail:5',
      lease_ms: 60_000,
    });
  });
  test('the patch names only what was changed; no topic and no limit are said as the API says them', () => {
    const draft = {
      ...draftOf(billing),
      dlq: ' ',
      attempts: '',
      backoff: '1s, 90s',
      lease: '1m',
      filter: " key == 'a' ",
    };
    const { config } = readDraft(draft, billing);
    expect(patchOf(changes(billing, config))).toEqual({
      lease_ms: 60_000,
      max_attempts: 0,
      backoff_ms: [1000, 90_000],
      dlq: null,
      filter: "key == 'a'",
    });
  });
  test('a field that cannot be read changes nothing, and least of all lifts a limit', () => {
    const { config } = readDraft({ ...draftOf(billing), attempts: 'eight', paused: true }, billing);
    expect(patchOf(changes(billing, config))).toEqual({ paused: true });
  });
  test('each wrong field is named', () => {
    const draft = {
      ...draftOf(billing),
      lease: '13h',
      attempts: 'many',
      backoff: 'soon',
      unacked: '1000001',
    };
    const { errors } = readDraft(draft, billing);
    expect(Object.keys(errors).sort()).toEqual(['attempts', 'backoff', 'lease', 'unacked']);
  });
  test('what cannot be empty is asked for', () => {
    const { errors } = readDraft({ ...draftOf(billing), lease: '', unacked: '' }, billing);
    expect(errors).toMatchObject({ lease: expect.stringContaining('Needed'), unacked: expect.anything() });
  });
});

test.each([
  ['', []],
  ['0', [0]],
  ['1s, 5s,30s', [1000, 5000, 30_000]],
  ['1s 5s', [1000, 5000]],
  ['250', [250]],
  ['1 min; 2 min', [60_000, 120_000]],
])('pauses %j are %j', (text, list) => expect(parseBackoff(text)).toEqual({ ok: true, list }));

test.each(['soon', '-1s', '1.5ms', '1s,,x', Array(33).fill('1s').join()])('pauses %j are refused', (text) =>
  expect(parseBackoff(text).ok).toBe(false),
);

test('a list of pauses is one value when two people change it', () => {
  const mine = { ...billing, backoff_ms: [1, 2, 3, 4] };
  const theirs = { ...billing, backoff_ms: [9], lease_ms: 5000 };
  expect(changes(billing, mine).map(({ field }) => field)).toEqual(['backoff_ms']);
  expect(rebase(billing, mine, theirs)).toEqual({ ...theirs, backoff_ms: [1, 2, 3, 4] });
});
