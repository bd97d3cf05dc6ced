/** One entry of a `Server-Timing` header. */
export interface Metric {
  readonly name: string;
  /** Milliseconds; `null` if the entry has none or one that is not a number. */
  readonly dur: number | null;
  readonly desc: string | null;
}

/** Reads `gw;dur=0.07, batch;desc="n=187, b=2"` as W3C Server Timing has it. Unknown parameters are skipped. */
export function parseServerTiming(header: string | null): Metric[] {
  if (!header) return [];
  return split(header, ',').flatMap((entry) => {
    const [name, ...parameters] = split(entry, ';').map((part) => part.trim());
    if (!name) return [];
    const values = new Map<string, string>();
    for (const parameter of parameters) {
      const equals = parameter.indexOf('=');
      if (equals < 0) continue;
      const key = parameter.slice(0, equals).trim().toLowerCase();
      if (!values.has(key)) values.set(key, unquote(parameter.slice(equals + 1).trim()));
    }
    const dur = Number(values.get('dur') ?? Number.NaN);
    return [{ name, dur: Number.isFinite(dur) ? dur : null, desc: values.get('desc') ?? null }];
  });
}

function split(text: string, separator: string): string[] {
  const pieces: string[] = [];
  let start = 0;
  let quoted = false;
  for (let i = 0; i < text.length; i += 1) {
    if (text[i] === '\\' && quoted) i += 1;
    else if (text[i] === '"') quoted = !quoted;
    else if (text[i] === separator && !quoted) {
      pieces.push(text.slice(start, i));
      start = i + 1;
    }
  }
  pieces.push(text.slice(start));
  return pieces;
}

const unquote = (text: string) =>
  text.startsWith('"') ? text.slice(1, text.endsWith('"') ? -1 : undefined).replaceAll(/\\(.)/g, '$1') : text;

/** The stages of a confirm in the order they happen, and what each means. */
export const STAGES = [
  { name: 'gw', label: 'Gateway', about: 'reading, checking and routing the request' },
  { name: 'net', label: 'Network', about: 'between the gateway and the partition’s leader' },
  { name: 'queue', label: 'Queue', about: 'waiting for the group commit in progress' },
  { name: 'write', label: 'Write', about: 'writing the batch into the journal' },
  { name: 'fsync', label: 'Sync', about: 'until the disk says it is durable' },
  { name: 'quorum', label: 'Quorum', about: 'until a majority of replicas has it' },
] as const;

export interface Stage {
  readonly name: string;
  readonly label: string;
  readonly about: string;
  /** Milliseconds. */
  readonly dur: number;
}

/** What the gateway measured, stage by stage, and the total; stages it did not send are left out. */
export function confirmStages(metrics: readonly Metric[]): {
  stages: Stage[];
  total: number | null;
  batch: string | null;
} {
  const find = (name: string) => metrics.find((metric) => metric.name === name);
  const stages = STAGES.flatMap(({ name, label, about }) => {
    const dur = find(name)?.dur;
    return dur === null || dur === undefined ? [] : [{ name, label, about, dur }];
  });
  return { stages, total: find('total')?.dur ?? null, batch: find('batch')?.desc ?? null };
}
