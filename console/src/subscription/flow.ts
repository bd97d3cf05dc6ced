import type { Subscription } from '../api/client';

/** How far a subscription was when it was read. */
export interface Mark {
  readonly id: number;
  /** Milliseconds since the epoch. */
  readonly at: number;
  readonly settled: number;
  readonly end: number;
}

/** Messages per second. */
export interface Flow {
  readonly settled: number;
  readonly arrived: number;
}

/** `undefined` while a partition's numbers are not known. */
export function markOf({ id, parts }: Subscription, at: number): Mark | undefined {
  let settled = 0;
  let end = 0;
  for (const part of parts) {
    if (part.floor == null || part.end == null) return undefined;
    settled += part.floor + (part.settled_above_floor ?? 0);
    end += part.end;
  }
  return { id, at, settled, end };
}

/** What went on between two marks; a seek backwards settles nothing. */
export function flowOf(before: Mark, after: Mark): Flow | undefined {
  const seconds = (after.at - before.at) / 1000;
  if (before.id !== after.id || seconds <= 0) return undefined;
  const perSecond = (count: number) => Math.max(0, count) / seconds;
  return { settled: perSecond(after.settled - before.settled), arrived: perSecond(after.end - before.end) };
}
