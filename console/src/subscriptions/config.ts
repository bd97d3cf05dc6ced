import type { SubscriptionConfig } from '../api/client';
import { durationText, parseCount, parseDuration, parsePause, type Quantity } from '../format/quantity';

/** A subscription's configuration as it stands in the form: texts as they were typed. */
export interface Draft {
  readonly lease: string;
  readonly attempts: string;
  readonly backoff: string;
  readonly dlq: string;
  readonly unacked: string;
  readonly filter: string;
  readonly fairBy: string;
  readonly paused: boolean;
}

export const DEFAULTS: SubscriptionConfig = {
  mode: 'queue',
  topics: [],
  lease_ms: 30_000,
  max_attempts: 16,
  backoff_ms: [1000, 5000, 30_000],
  dlq: null,
  order: 'none',
  filter: null,
  fair_by: null,
  start: 'earliest',
  max_unacked: 10_000,
  paused: false,
};

export const isStream = ({ mode }: SubscriptionConfig) => mode === 'stream';

/** It consumes more than one topic, or may: then its messages are named with their topic. */
export const ofSeveral = ({ topics }: SubscriptionConfig) =>
  topics.length > 1 || topics[0]?.endsWith('*') === true;

/** What a stream has none of is left as it stands by default. */
export const asStream = ({ lease_ms, paused, topics, start }: SubscriptionConfig): SubscriptionConfig => ({
  ...DEFAULTS,
  mode: 'stream',
  topics,
  start,
  lease_ms,
  paused,
});

const LEASE_MS = { min: 1000, max: 43_200_000 };
const UNACKED_MAX = 1_000_000;
const ATTEMPTS_MAX = 2 ** 32 - 1;
const BACKOFFS_MAX = 32;

export function draftOf(config: SubscriptionConfig): Draft {
  return {
    lease: durationText(config.lease_ms),
    attempts: config.max_attempts ? String(config.max_attempts) : '',
    backoff: backoffText(config.backoff_ms ?? []),
    dlq: config.dlq ?? '',
    unacked: String(config.max_unacked ?? ''),
    filter: config.filter ?? '',
    fairBy: config.fair_by ?? '',
    paused: config.paused ?? false,
  };
}

export type DraftErrors = Partial<Record<keyof Draft, string>>;

/** `base` with what the form says, or what is wrong with each field. Fields the form does not show stay. */
export function readDraft(
  draft: Draft,
  base: SubscriptionConfig,
): { config: SubscriptionConfig; errors: DraftErrors } {
  const errors: DraftErrors = {};
  const take = (field: keyof Draft, quantity: Quantity, min: number, max: number, why: string) => {
    if (quantity.ok && (quantity.value === null || (quantity.value >= min && quantity.value <= max)))
      return quantity.value;
    errors[field] = quantity.ok ? why : quantity.why;
    return null;
  };
  const lease = take('lease', parseDuration(draft.lease), LEASE_MS.min, LEASE_MS.max, 'From 1s to 12h.');
  if (lease === null) errors.lease ??= 'Needed: how long a worker has before the message comes again.';
  const unacked = take('unacked', parseCount(draft.unacked), 1, UNACKED_MAX, 'At most 1,000,000.');
  if (unacked === null) errors.unacked ??= 'Needed: at most 1,000,000.';
  const attempts = take('attempts', parseCount(draft.attempts), 1, ATTEMPTS_MAX, 'At most 4,294,967,295.');
  const backoff = parseBackoff(draft.backoff);
  if (!backoff.ok) errors.backoff = backoff.why;
  const textOrNull = (text: string) => (text.trim() === '' ? null : text.trim());
  // The API keeps the spaces around an expression: untouched, it is not changed.
  const expression = (text: string, before: string | null | undefined) =>
    text === (before ?? '') ? (before ?? null) : textOrNull(text);
  const config: SubscriptionConfig = {
    ...base,
    lease_ms: lease ?? base.lease_ms ?? LEASE_MS.min,
    // What cannot be read leaves what was: a command that is copied meanwhile must not lift the limit.
    max_attempts: errors.attempts ? (base.max_attempts ?? 0) : (attempts ?? 0),
    backoff_ms: backoff.ok ? backoff.list : (base.backoff_ms ?? []),
    dlq: textOrNull(draft.dlq),
    filter: expression(draft.filter, base.filter),
    fair_by: expression(draft.fairBy, base.fair_by),
    max_unacked: unacked ?? base.max_unacked ?? 1,
    paused: draft.paused,
  };
  return { config, errors };
}

type Backoff = { ok: true; list: number[] } | { ok: false; why: string };

/** `1s, 5s, 30s`; nothing is no pause at all, and `0` is none before that delivery. */
export function parseBackoff(text: string): Backoff {
  const list: number[] = [];
  for (const piece of text.split(/[,;]\s*|\s+(?=\d)/)) {
    if (piece.trim() === '') continue;
    const quantity = parsePause(piece);
    if (!quantity.ok || quantity.value === null) return { ok: false, why: 'Write them like 1s, 5s, 30s.' };
    list.push(quantity.value);
  }
  return list.length <= BACKOFFS_MAX ? { ok: true, list } : { ok: false, why: 'At most 32 pauses.' };
}

export const backoffText = (list: readonly number[]) => list.map((ms) => durationText(ms)).join(', ');
