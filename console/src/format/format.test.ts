import { describe, expect, test } from 'vitest';
import { bytes, counted, grouped, often, rate } from './number';
import { durationText, parseCount, parseDuration, parsePause, parseSize, sizeText } from './quantity';
import { age, brief, instant, lasting, offsetOf, parseInstant, secondAgo, typedInstant } from './time';

describe('numbers', () => {
  test('digits are grouped and never rounded', () => {
    expect(grouped(18446744073709551615n)).toBe('18,446,744,073,709,551,615');
    expect(grouped(Number.MAX_SAFE_INTEGER)).toBe('9,007,199,254,740,991');
    expect(grouped(999)).toBe('999');
  });
  test.each([
    [0, '0'],
    [0.04, '< 0.1'],
    [0.5, '0.5'],
    [12, '12'],
    [12.34, '12.3'],
    [999.7, '1 k'],
    [1210, '1.21 k'],
    [48_230, '48.2 k'],
    [1_284_000, '1.28 M'],
    [Number.NaN, '–'],
  ])('rate %d reads %s', (value, text) => expect(rate(value)).toBe(text));
  test.each([
    [0, '0 B'],
    [1023, '1023 B'],
    [1024, '1 KiB'],
    [1536, '1.5 KiB'],
    [1048575, '1 MiB'],
  ])('%d bytes read %s', (value, text) => expect(bytes(value).replace('.0', '')).toBe(text));
  test('one is singular', () => {
    expect(counted(1, 'message')).toBe('1 message');
    expect(counted(2000, 'message')).toBe('2,000 messages');
    expect(often(1, 'write')).toBe('1 write');
    expect(often(0.5, 'write')).toBe('0.5 writes');
  });
});

describe('quantities', () => {
  test.each([
    ['7d', 604_800_000],
    ['1.5 h', 5_400_000],
    ['250', 250],
    ['604,800,000', 604_800_000],
    ['9007199254740991', Number.MAX_SAFE_INTEGER],
  ])('duration %s is %d ms', (text, value) => expect(parseDuration(text)).toEqual({ ok: true, value }));
  test.each(['-1', '1w', '1e3', '0', '0.5', '9007199254740992', 'abc', '1,5h', '12,34', ',100'])(
    'duration %s is refused',
    (text) => expect(parseDuration(text).ok).toBe(false),
  );
  test('a pause may be none, where a duration is at least one', () => {
    expect(parsePause('0')).toEqual({ ok: true, value: 0 });
    expect(parsePause(' 0s')).toEqual({ ok: true, value: 0 });
    expect(parsePause('5s')).toEqual({ ok: true, value: 5000 });
    expect(parsePause('')).toEqual({ ok: true, value: null });
    expect(parsePause('soon').ok).toBe(false);
  });
  test('empty means no limit', () => expect(parseSize(' ')).toEqual({ ok: true, value: null }));
  test('sizes are binary', () => {
    expect(parseSize('1.5 GiB')).toEqual({ ok: true, value: 1_610_612_736 });
    expect(parseSize('10g')).toEqual({ ok: true, value: 10_737_418_240 });
    expect(parseCount('5k').ok).toBe(false);
  });
  test.each([1, 999, 60_000, 86_400_000, 604_800_001])('the text of %d ms is read back as it', (ms) => {
    expect(parseDuration(durationText(ms))).toEqual({ ok: true, value: ms });
  });
  test.each([1, 1023, 1024, 10_737_418_240, Number.MAX_SAFE_INTEGER])(
    'the text of %d bytes is read back',
    (n) => {
      expect(parseSize(sizeText(n))).toEqual({ ok: true, value: n });
    },
  );
});

describe('times', () => {
  const ms = Date.UTC(2026, 10, 21, 3, 35, 0, 123);
  test('are written in the chosen zone to the millisecond', () => {
    expect(instant(ms, 'utc')).toBe('2026-11-21 03:35:00.123');
    expect(instant(ms, 'local', 'Asia/Kolkata')).toBe('2026-11-21 09:05:00.123');
    expect(brief(ms, ms + 1000, 'local', 'Asia/Kolkata')).toBe('09:05:00.123');
    // 16 hours later that was yesterday in the zone, and not in UTC.
    const later = ms + 16 * 3_600_000;
    expect(brief(ms, later, 'local', 'Asia/Kolkata')).toBe('11-21 09:05');
    expect(brief(ms, later, 'utc')).toBe('03:35:00.123');
    expect(brief(ms, later + 365 * 86_400_000, 'utc')).toBe('2026-11-21');
    expect(offsetOf(ms, 'local', 'Asia/Kolkata')).toBe('+05:30');
    expect(offsetOf(ms, 'utc')).toBe('Z');
  });
  test('what is written is read back', () => {
    for (const zone of ['UTC', 'Asia/Kolkata', 'America/St_Johns', 'Pacific/Kiritimati']) {
      expect(parseInstant(instant(ms, 'local', zone), 'local', zone)).toBe(ms);
    }
  });
  test('a skipped hour is refused, a repeated one is its earlier instant', () => {
    expect(parseInstant('2026-03-29 02:30', 'local', 'Europe/Berlin')).toBeNull();
    expect(parseInstant('2026-10-25 02:30', 'local', 'Europe/Berlin')).toBe(Date.UTC(2026, 9, 25, 0, 30));
    expect(parseInstant('2026-10-25 03:30', 'local', 'Europe/Berlin')).toBe(Date.UTC(2026, 9, 25, 2, 30));
  });
  test('a repeated hour is read back as the one that it is', () => {
    const [zone, half] = ['Europe/Berlin', Date.UTC(2026, 9, 25, 0, 30)];
    const later = half + 3_600_000;
    expect(typedInstant(half, 'local', zone)).toBe('2026-10-25 02:30:00.000');
    expect(typedInstant(later, 'local', zone)).toBe('2026-10-25 02:30:00.000 +01:00');
    expect(secondAgo(60_000, 'local', later + 60_500, zone)).toBe('2026-10-25 02:30:00 +01:00');
    expect(secondAgo(60_000, 'utc', later + 60_500)).toBe('2026-10-25 01:30:00');
    for (const ms of [half, later]) {
      expect(parseInstant(typedInstant(ms, 'local', zone), 'local', zone)).toBe(ms);
      expect(parseInstant(typedInstant(ms, 'local', zone).replace('.000', ''), 'local', zone)).toBe(ms);
    }
    expect(parseInstant('2026-10-25T01:30:00Z', 'local', zone)).toBe(later);
    expect(parseInstant('2026-02-30 10:00 +01:00', 'utc')).toBeNull();
  });
  test.each(['', '2026-02-30 10:00', '2026-13-01 10:00', 'yesterday', '2026-01-01'])(
    '%s is no time',
    (text) => expect(parseInstant(text, 'utc')).toBeNull(),
  );
});

test.each([
  [-5, '0 s', '0 s'],
  [999, '0 s', '0 s'],
  [59_999, '59 s', '59 s'],
  [60_000, '1 min', '1 min'],
  [582_000, '9 min 42 s', '9 min'],
  [3_600_000 * 5 + 59 * 60_000, '5 h 59 min', '5 h'],
  [86_400_000 * 2 + 3_600_000, '2 d 1 h', '2 d'],
])('%d ms last %s, %s ago', (ms, exact, rough) => {
  expect(lasting(ms)).toBe(exact);
  expect(age(1e12 - ms, 1e12)).toBe(rough);
});
