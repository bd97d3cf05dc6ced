import type { Peek } from '../api/messages';
import type { Target } from './session';

/** Where a live tail starts. `now` goes on behind what the page shows. */
export type LiveStart = 'now' | 'earliest' | 'tail:100';

export const LIVE_STARTS: readonly { readonly id: LiveStart; readonly label: string }[] = [
  { id: 'now', label: 'From now on' },
  { id: 'earliest', label: 'From the earliest' },
  { id: 'tail:100', label: 'From the last 100' },
];

/** The start that `from` of the address means while the tail is on; positions that it does not offer mean now. */
export const liveStart = (from: string | undefined): LiveStart =>
  LIVE_STARTS.find(({ id }) => id === from)?.id ?? 'now';

interface Followed {
  readonly ns: string;
  readonly topic: string;
  readonly partitions: number;
  /** The partition that is shown alone. */
  readonly partition: number | undefined;
}

/**
 * What to follow. From now: from where the page ended; of several partitions at the end, and what lies between is
 * marked. From elsewhere the page is not shown, so nothing is known and nothing is missing.
 */
export function targetOf(followed: Followed, start: LiveStart, page: Peek | undefined): Target {
  const { ns, topic, partitions, partition } = followed;
  const only = partitions === 1 ? null : (partition ?? null);
  const target = { ns, topic, partitions, only };
  if (start !== 'now') return { ...target, from: start, known: [] };
  const single = partitions === 1 ? 0 : partition;
  const next = single === undefined ? undefined : page?.next.get(single);
  return { ...target, from: next === undefined ? 'latest' : String(next), known: [...(page?.next ?? [])] };
}
