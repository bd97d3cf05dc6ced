/** Digits in groups of three, exact for any size: `18,446,744,073,709,551,615`. */
export function grouped(value: number | bigint): string {
  return value.toString().replace(/\B(?=(\d{3})+$)/g, ',');
}

/** `value` cut to three significant digits with a decimal prefix: 0, 12, 1.21 k, 48.2 k, 1.28 M. For rates only. */
export function rate(perSecond: number): string {
  if (!Number.isFinite(perSecond) || perSecond < 0) return '–';
  if (perSecond > 0 && perSecond < 0.1) return '< 0.1';
  for (const [size, prefix] of [
    [1e9, ' G'],
    [1e6, ' M'],
    [1e3, ' k'],
  ] as const) {
    if (perSecond >= size * 0.9995) return three(perSecond / size) + prefix;
  }
  return Number.isInteger(perSecond) ? String(perSecond) : three(perSecond);
}

function three(value: number): string {
  if (value >= 99.95) return value.toFixed(0);
  return value >= 9.995 ? value.toFixed(1) : value.toFixed(2).replace(/\.?0+$/, '');
}

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** Bytes with a binary prefix, rounded to one decimal: `512 B`, `1.5 KiB`. */
export function bytes(count: number): string {
  let value = count;
  let unit = 0;
  while (value >= 1023.95 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value === Math.trunc(value) ? value : value.toFixed(1)} ${UNITS[unit]}`;
}

/** How often something is done, rounded as rates are: `1 write`, `0.5 writes`. */
export function often(times: number, one: string): string {
  const shown = rate(times);
  return `${shown} ${shown === '1' ? one : `${one}s`}`;
}

/** `one` or `many` by count, with the count: `1 message`, `2,000 messages`. */
export function counted(count: number | bigint, one: string, many = `${one}s`): string {
  return `${grouped(count)} ${BigInt(count) === 1n ? one : many}`;
}
