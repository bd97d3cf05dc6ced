import type { Topic } from '../api/client';

type Partition = Topic['partitions'][number];
export type PartitionStorage = NonNullable<Partition['storage']>;
export type DamagedObject = NonNullable<Topic['storage']>['damaged'][number];

/** Where messages are, from the oldest to the newest. */
export type Place = 'cold' | 'archived' | 'uploading' | 'local';

export const PLACES: readonly { readonly place: Place; readonly name: string; readonly means: string }[] = [
  { place: 'cold', name: 'Cold', means: 'only in the object store' },
  { place: 'archived', name: 'Archived', means: 'in the object store, and still on the node' },
  { place: 'uploading', name: 'Uploading', means: 'on their way to the object store' },
  { place: 'local', name: 'Local', means: 'only on the node' },
];

export interface Segment {
  readonly place: Place;
  readonly from: number;
  readonly to: number;
  readonly bytes: number;
}

/** The offsets `[start, end)` by place; places without messages are left out. */
export function segments(start: number, end: number, storage: PartitionStorage): readonly Segment[] {
  const ends: readonly [Place, number, number][] = [
    ['cold', storage.cold_to, storage.cold_bytes],
    ['archived', storage.archived_to, storage.archived_bytes],
    ['uploading', storage.uploading_to, storage.uploading_bytes],
    ['local', end, storage.local_bytes],
  ];
  let from = start;
  const found: Segment[] = [];
  for (const [place, upto, bytes] of ends) {
    const to = Math.min(end, Math.max(from, upto));
    if (to > from) found.push({ place, from, to, bytes });
    from = to;
  }
  return found;
}

/** Bytes by place over all partitions; `null` if one does not say. */
export function placed(topic: Topic): Readonly<Record<Place, number>> | null {
  const sums = { cold: 0, archived: 0, uploading: 0, local: 0 };
  for (const { storage } of topic.partitions) {
    if (!storage) return null;
    sums.cold += storage.cold_bytes;
    sums.archived += storage.archived_bytes;
    sums.uploading += storage.uploading_bytes;
    sums.local += storage.local_bytes;
  }
  return sums;
}

/** The longest that a message of the topic has waited to be uploaded. */
export const lagMs = (topic: Topic) =>
  Math.max(0, ...topic.partitions.map(({ storage }) => storage?.upload_lag_ms ?? 0));

/** Objects by name, of those that messages could not be read from: one may be told for several partitions. */
export const objectsOf = (damaged: readonly DamagedObject[]) =>
  new Set(damaged.map(({ object }) => object)).size;

/** How much of `asked` the cache had, cut and not rounded, so that 100 % is all of it; `null` if nothing was asked for. */
export function hitPercent(cached: number, asked: number): string | null {
  if (asked < 0.05) return null;
  return `${Math.floor(Math.min(1, cached / asked) * 1000) / 10} %`;
}

/** A sum of money to a few digits: `0`, `< 0.0001`, `0.0123`, `1.23`. */
export function money(amount: number): string {
  if (amount === 0) return '0';
  if (amount < 0.0001) return '< 0.0001';
  return amount < 1 ? amount.toPrecision(2).replace(/\.?0+$/, '') : amount.toFixed(2);
}
