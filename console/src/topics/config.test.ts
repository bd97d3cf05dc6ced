import { describe, expect, test } from 'vitest';
import { changes, patchOf, rebase } from '../edit/changes';
import { nameError } from '../edit/name';
import { DEFAULTS, draftOf, readDraft } from './config';

const week = { ...DEFAULTS, retention: { ...DEFAULTS.retention, age_ms: 604_800_000 } };

describe('configuration form', () => {
  test('an untouched form changes nothing', () => {
    const odd = {
      ...week,
      ttl_ms: 1,
      retention: { age_ms: 86_400_001, bytes: Number.MAX_SAFE_INTEGER, records: 7, until_settled: true },
    };
    const compacted = { ...week, compaction: 'key' as const };
    for (const base of [odd, compacted]) {
      const { config, errors } = readDraft(draftOf(base), base);
      expect(errors).toEqual({});
      expect(changes(base, config)).toEqual([]);
    }
  });
  test('compaction is turned on and off, and not beside what removes settled messages', () => {
    const on = readDraft({ ...draftOf(week), byKey: true }, week);
    expect(patchOf(changes(week, on.config))).toEqual({ compaction: 'key' });
    const off = readDraft({ ...draftOf(on.config), byKey: false }, on.config);
    expect(patchOf(changes(on.config, off.config))).toEqual({ compaction: 'none' });
    const both = readDraft({ ...draftOf(week), byKey: true, untilSettled: true }, week);
    expect(Object.keys(both.errors)).toEqual(['byKey']);
  });
  test('the patch names only what was changed, and null lifts a limit', () => {
    const { config } = readDraft(
      { ...draftOf(week), age: '', records: '1000', untilSettled: true, closed: true },
      week,
    );
    expect(patchOf(changes(week, config))).toEqual({
      retention: { age_ms: null, records: 1000, until_settled: true },
      closed: true,
    });
  });
  test('a field that cannot be read changes nothing, and least of all lifts a limit', () => {
    const { config } = readDraft({ ...draftOf(week), age: '7 days', ttl: '2w', closed: true }, week);
    expect(patchOf(changes(week, config))).toEqual({ closed: true });
  });
  test('each wrong field is named', () => {
    const { errors } = readDraft({ ...draftOf(week), age: 'soon', dedupe: '', contentType: 'json' }, week);
    expect(Object.keys(errors).sort()).toEqual(['age', 'contentType', 'dedupe']);
  });
});

test('a rebase keeps my fields and takes theirs elsewhere', () => {
  const mine = { ...week, ttl_ms: 5000 };
  const theirs = { ...week, closed: true, retention: { ...week.retention, bytes: 10 } };
  expect(changes(theirs, rebase(week, mine, theirs))).toEqual([
    { field: 'ttl_ms', before: null, after: 5000 },
  ]);
});

test.each(['', '.', '..', 'a b', 'a/b', '<img>', 'x'.repeat(256)])('topic name %j is refused', (name) =>
  expect(nameError(name)).not.toBeNull(),
);
test.each(['orders', 'a.b_c~d-e', '...', 'x'.repeat(255)])('topic name %j is fine', (name) =>
  expect(nameError(name)).toBeNull(),
);
