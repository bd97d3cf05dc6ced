import { useSyncExternalStore } from 'react';
import type { Settle, SettledLease } from '../api/client';
import type { Held } from '../api/pulled';

/** What can be done with a lease. */
export type Act = 'ack' | 'nack' | 'extend' | 'dead';

/** A message that was leased by hand, and what became of it. */
export interface Entry {
  readonly held: Held;
  /** `null` while it can be settled. */
  readonly fate: Fate | null;
  /** Told beside a lease that is still held, or may be. */
  readonly note: string | null;
}

export interface Fate {
  readonly tone: 'ok' | 'warn';
  readonly text: string;
}

/** Kept beside the page: leases outlive a look at another tab. */
const bySubscription = new Map<number, readonly Entry[]>();
const listeners = new Set<() => void>();
const NONE: readonly Entry[] = [];

function put(subscription: number, entries: readonly Entry[]) {
  bySubscription.set(subscription, entries);
  for (const listener of listeners) listener();
}

const get = (subscription: number) => bySubscription.get(subscription) ?? NONE;

export function useHeld(subscription: number): readonly Entry[] {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => get(subscription),
  );
}

/** Entries shown at most; the oldest that are done go first. */
const ENTRIES_MAX = 50;

export function hold(subscription: number, held: readonly Held[]) {
  // A stream gives again what was not acknowledged.
  const leases = new Set(held.map(({ lease }) => lease));
  const others = get(subscription).filter((entry) => !leases.has(entry.held.lease));
  const entries = [...held.map((one) => ({ held: one, fate: null, note: null })), ...others];
  const open = entries.filter(({ fate }) => fate === null).length;
  put(
    subscription,
    entries.filter(({ fate }, index) => fate === null || index < Math.max(ENTRIES_MAX, open)),
  );
}

/** Forgets what is done. */
export const tidy = (subscription: number) =>
  put(
    subscription,
    get(subscription).filter(({ fate }) => fate === null),
  );

export function change(subscription: number, lease: string, to: (entry: Entry) => Entry) {
  put(
    subscription,
    get(subscription).map((entry) => (entry.held.lease === lease ? to(entry) : entry)),
  );
}

export interface Wish {
  readonly reason: string;
  /** Pause before the next attempt, milliseconds; `null`: as the subscription says. */
  readonly delay: number | null;
}

/** The request for one lease. */
export function settleOf(act: Act, lease: string, { reason, delay }: Wish): Partial<Settle> {
  if (act === 'ack') return { ack: [lease] };
  if (act === 'extend') return { extend: [{ lease }] };
  if (act === 'dead') return { dead: [{ lease, reason }] };
  return { nack: [{ lease, reason, ...(delay !== null && { delay_ms: delay }) }] };
}

const DONE: Record<Exclude<Act, 'extend'>, string> = {
  ack: 'Acknowledged: never delivered again.',
  nack: 'Given back: it is delivered again.',
  dead: 'Given up: a dead letter.',
};

/** The entry after the gateway said what became of it. `leaseMs`: how long an extension holds it from `now` on. */
export function settledAs(entry: Entry, act: Act, result: SettledLease, now: number, leaseMs: number): Entry {
  switch (result.result) {
    case 'ok':
      if (act === 'extend')
        return { ...entry, note: 'Extended.', held: { ...entry.held, until: now + leaseMs } };
      return { ...entry, note: null, fate: { tone: 'ok', text: DONE[act] } };
    case 'lease_lost': {
      const attempt = result.current?.attempt;
      const why = attempt === undefined ? 'or a seek ended the lease' : `as attempt ${attempt}`;
      return {
        ...entry,
        fate: { tone: 'warn', text: `Too late: it was delivered again, ${why}. Nothing was changed.` },
      };
    }
    case 'already_settled':
      return { ...entry, fate: { tone: 'warn', text: 'It had been settled before.' } };
    case 'unknown':
      return {
        ...entry,
        fate: { tone: 'warn', text: 'This lease is not known any more, as after a redrive.' },
      };
    case 'failed':
      return { ...entry, note: `Its partition was not reached: ${result.problem?.detail ?? 'try again'}.` };
  }
}
