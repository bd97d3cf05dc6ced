/**
 * Durations and sizes as people type them (`7d`, `1.5 GiB`, `604800000`), held as exact integers. A value that
 * is not a whole number of milliseconds or bytes, or not below 2^53, is refused rather than rounded.
 */
export type Quantity = { ok: true; value: number | null } | { ok: false; why: string };

interface Unit {
  readonly names: readonly string[];
  readonly size: bigint;
}

const DURATION: readonly Unit[] = [
  { names: ['ms', ''], size: 1n },
  { names: ['s', 'sec'], size: 1_000n },
  { names: ['m', 'min'], size: 60_000n },
  { names: ['h'], size: 3_600_000n },
  { names: ['d'], size: 86_400_000n },
];
const SIZE: readonly Unit[] = [
  { names: ['b', ''], size: 1n },
  { names: ['kib', 'k'], size: 1n << 10n },
  { names: ['mib', 'm'], size: 1n << 20n },
  { names: ['gib', 'g'], size: 1n << 30n },
  { names: ['tib', 't'], size: 1n << 40n },
];
const COUNT: readonly Unit[] = [{ names: [''], size: 1n }];
const MAX = BigInt(Number.MAX_SAFE_INTEGER);

function parse(text: string, units: readonly Unit[], example: string): Quantity {
  // A comma groups digits by three; in `1,5h` it means something else where people write it.
  if (/(^|\D),|,(?!\d{3}(?!\d))/.test(text)) return { ok: false, why: `Write it like ${example}.` };
  const trimmed = text.trim().replaceAll(/[,_]/g, '');
  if (trimmed === '') return { ok: true, value: null };
  const match = /^(\d+)(?:\.(\d+))?\s*([a-z]*)$/i.exec(trimmed);
  const unit = match && units.find(({ names }) => names.includes((match[3] ?? '').toLowerCase()));
  if (!match || !unit) return { ok: false, why: `Write it like ${example}.` };
  const fraction = match[2] ?? '';
  const scaled = BigInt((match[1] ?? '') + fraction) * unit.size;
  const divisor = 10n ** BigInt(fraction.length);
  if (scaled % divisor !== 0n) return { ok: false, why: 'This is not a whole number of the smallest unit.' };
  const value = scaled / divisor;
  if (value < 1n) return { ok: false, why: 'Must be at least 1. Leave it empty for no limit.' };
  if (value > MAX) return { ok: false, why: 'Must be below 2^53.' };
  return { ok: true, value: Number(value) };
}

export const parseDuration = (text: string) => parse(text, DURATION, '7d, 36h, 90s or 250 (milliseconds)');
/** A duration that may be none at all. */
export const parsePause = (text: string): Quantity =>
  /^\s*0+\s*(ms|sec|s|min|m|h|d)?\s*$/i.test(text) ? { ok: true, value: 0 } : parseDuration(text);
export const parseSize = (text: string) => parse(text, SIZE, '10 GiB, 512 MiB or 1048576 (bytes)');
export const parseCount = (text: string) => parse(text, COUNT, '1000000');

function shortest(value: number | null | undefined, units: readonly Unit[], spaced: boolean): string {
  if (value === null || value === undefined) return '';
  const exact = BigInt(value);
  for (const unit of [...units].reverse()) {
    if (exact !== 0n && exact % unit.size === 0n) {
      const name = unit.names[0] ?? '';
      return `${exact / unit.size}${spaced ? ' ' : ''}${spaced ? binaryName(name) : name}`;
    }
  }
  return String(value);
}

const binaryName = (name: string) =>
  name === 'b' ? 'B' : name.replace(/^(.)ib$/, (_, c: string) => `${c.toUpperCase()}iB`);

/** The shortest text that `parseDuration` reads as exactly `ms`. */
export const durationText = (ms: number | null | undefined) => shortest(ms, DURATION, false);
/** The shortest text that `parseSize` reads as exactly `count` bytes. */
export const sizeText = (count: number | null | undefined) => shortest(count, SIZE, true);
