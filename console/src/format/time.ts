/** Which zone all times of the console are written in: never two on one page. */
export type Zone = 'utc' | 'local';

export const localZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;
export const zoneName = (zone: Zone) => (zone === 'utc' ? 'UTC' : localZone());

const formats = new Map<string, Intl.DateTimeFormat>();

function parts(ms: number, timeZone: string): Record<string, string> {
  let format = formats.get(timeZone);
  if (!format) {
    format = new Intl.DateTimeFormat('en-GB', {
      timeZone,
      year: 'numeric',
      month: '2-digit',
      day: '2-digit',
      hour: '2-digit',
      minute: '2-digit',
      second: '2-digit',
      fractionalSecondDigits: 3,
      hourCycle: 'h23',
      timeZoneName: 'longOffset',
    });
    formats.set(timeZone, format);
  }
  return Object.fromEntries(format.formatToParts(ms).map(({ type, value }) => [type, value]));
}

/** `2026-11-21 09:05:00.123` in the zone. */
export function instant(ms: number, zone: Zone, timeZone = zoneName(zone)): string {
  const p = parts(ms, timeZone);
  return `${p.year}-${p.month}-${p.day} ${p.hour}:${p.minute}:${p.second}.${p.fractionalSecond}`;
}

/** `instant` as a field shows it: of a time that the clocks show twice with its offset, to be read back as the same. */
export function typedInstant(ms: number, zone: Zone, timeZone = zoneName(zone)): string {
  return distinct(instant(ms, zone, timeZone), ms, zone, timeZone);
}

const distinct = (text: string, ms: number, zone: Zone, timeZone: string) =>
  parseInstant(text, zone, timeZone) === ms ? text : `${text} ${offsetOf(ms, zone, timeZone)}`;

/** The second that was so many milliseconds before `now`, as a field for a time begins. */
export function secondAgo(ms: number, zone: Zone, now = Date.now(), timeZone = zoneName(zone)): string {
  const second = Math.floor((now - ms) / 1000) * 1000;
  return distinct(instant(second, zone, timeZone).slice(0, 19), second, zone, timeZone);
}

/** In the room of a clock: `09:05:00.123` of the day that `now` is in, `11-21 09:05` of another, `2025-11-21` of another year. */
export function brief(ms: number, now: number, zone: Zone, timeZone = zoneName(zone)): string {
  const [then, today] = [instant(ms, zone, timeZone), instant(now, zone, timeZone)];
  if (then.slice(0, 10) === today.slice(0, 10)) return then.slice(11);
  return then.slice(0, 4) === today.slice(0, 4) ? then.slice(5, 16) : then.slice(0, 10);
}

/** `+05:30`; `Z` in UTC. */
export function offsetOf(ms: number, zone: Zone, timeZone = zoneName(zone)): string {
  const name = parts(ms, timeZone).timeZoneName ?? 'GMT';
  const offset = name.replace('GMT', '');
  return offset === '' || offset === '+00:00' ? 'Z' : offset;
}

/**
 * Milliseconds of `2026-11-21 09:05[:00[.123]]` in the zone, or at the offset that stands behind it (`+05:30`, `Z`). A time
 * that does not exist there (spring forward) or is not a date is `null`; of one that exists twice the earlier.
 */
export function parseInstant(text: string, zone: Zone, timeZone = zoneName(zone)): number | null {
  const match =
    /^\s*(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,3}))?)?\s*(Z|[+-]\d\d:\d\d)?\s*$/.exec(
      text,
    );
  if (!match) return null;
  const [year, month, day, hour, minute, second] = match.slice(1, 7).map((part) => Number(part ?? 0));
  const milli = Number((match[7] ?? '0').padEnd(3, '0'));
  const naive = Date.UTC(year ?? 0, (month ?? 1) - 1, day, hour, minute, second, milli);
  const wanted = new Date(naive).toISOString().slice(0, 23).replace('T', ' ');
  const written = `${match[1]}-${match[2]}-${match[3]} ${match[4]}:${match[5]}`;
  if (!wanted.startsWith(written)) return null;
  if (match[8]) return naive - minutesOf(match[8]) * 60_000;
  // Offsets of all zones lie within 14 h and change in steps of 15 min; the earlier instant is tried first.
  const HOUR = 3_600_000;
  const offsets = [naive - 15 * HOUR, naive + 15 * HOUR].map((ms) => minutesOf(offsetOf(ms, zone, timeZone)));
  const candidates = offsets.map((minutes) => naive - minutes * 60_000).sort((a, b) => a - b);
  return candidates.find((ms) => instant(ms, zone, timeZone) === wanted) ?? null;
}

function minutesOf(offset: string): number {
  const match = /^([+-])(\d\d):(\d\d)/.exec(offset);
  if (!match) return 0;
  return (match[1] === '-' ? -1 : 1) * (Number(match[2]) * 60 + Number(match[3]));
}

/** `just now`, `12 s ago`, `3 min ago`, `5 h ago`, `2 d ago`. */
export const ago = (ms: number, now: number) => (now - ms < 2000 ? 'just now' : `${age(ms, now)} ago`);

/** How long ago: `12 s`, `3 min`, `5 h`, `2 d`. */
export const age = (ms: number, now: number) => coarse(now - ms);

/** A span in its largest whole unit: `0 s`, `12 s`, `3 min`, `5 h`, `2 d`. */
function coarse(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/** A span in its two largest units: `12 s`, `3 min 4 s`, `5 h 59 min`, `2 d 1 h`. */
export function lasting(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const units = [
    [86_400, 'd'],
    [3600, 'h'],
    [60, 'min'],
    [1, 's'],
  ] as const;
  const first = units.findIndex(([size]) => seconds >= size);
  if (first === -1) return '0 s';
  let left = seconds;
  const words = units.slice(first, first + 2).map(([size, name]) => {
    const count = Math.floor(left / size);
    left %= size;
    return count > 0 ? `${count} ${name}` : '';
  });
  return words.filter(Boolean).join(' ');
}
