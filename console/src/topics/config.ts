import type { Level, TopicConfig } from '../api/client';
import {
  durationText,
  parseCount,
  parseDuration,
  parseSize,
  type Quantity,
  sizeText,
} from '../format/quantity';

/** A topic's configuration as it stands in the form: texts as they were typed. */
export interface Draft {
  readonly contentType: string;
  readonly age: string;
  readonly bytes: string;
  readonly records: string;
  readonly ttl: string;
  readonly dedupe: string;
  readonly defaultConfirm: Level;
  readonly minConfirm: Level;
  readonly untilSettled: boolean;
  /** Of each key only the newest message is kept. */
  readonly byKey: boolean;
  readonly closed: boolean;
}

export const DEFAULTS: TopicConfig = {
  partitions: 1,
  content_type: null,
  retention: { age_ms: null, bytes: null, records: null, until_settled: false },
  compaction: 'none',
  default_confirm: 'quorum',
  deliver_from: 'quorum',
  min_confirm: 'none',
  dedupe: { window_ms: 600_000 },
  ttl_ms: null,
  closed: false,
  cache: 'private',
};

export function draftOf(config: TopicConfig): Draft {
  return {
    contentType: config.content_type ?? '',
    age: durationText(config.retention.age_ms),
    bytes: sizeText(config.retention.bytes),
    records: config.retention.records == null ? '' : String(config.retention.records),
    ttl: durationText(config.ttl_ms),
    dedupe: durationText(config.dedupe.window_ms),
    defaultConfirm: config.default_confirm,
    minConfirm: config.min_confirm,
    untilSettled: config.retention.until_settled,
    byKey: config.compaction === 'key',
    closed: config.closed,
  };
}

export type DraftErrors = Partial<Record<keyof Draft, string>>;

/** `base` with what the form says, or what is wrong with each field. Fields the form does not show stay. */
export function readDraft(draft: Draft, base: TopicConfig): { config: TopicConfig; errors: DraftErrors } {
  const errors: DraftErrors = {};
  // What cannot be read leaves `before`: a command that is copied meanwhile must not lift a limit.
  const take = (field: keyof Draft, quantity: Quantity, before: number | null | undefined): number | null => {
    if (quantity.ok) return quantity.value;
    errors[field] = quantity.why;
    return before ?? null;
  };
  const contentType = draft.contentType.trim();
  if (contentType !== '' && !/^[\w!#$&^.+-]+\/[\w!#$&^.+-]+(\s*;.*)?$/.test(contentType)) {
    errors.contentType = 'Write it like application/json.';
  }
  const window = take('dedupe', parseDuration(draft.dedupe), base.dedupe.window_ms);
  if (window === null && !errors.dedupe) errors.dedupe = 'Needed: how long idempotency keys are remembered.';
  if (draft.byKey && draft.untilSettled) {
    errors.byKey = 'Not together with removing what is settled, which would take the newest too.';
  }
  const config: TopicConfig = {
    ...base,
    content_type: contentType === '' ? null : contentType,
    retention: {
      ...base.retention,
      age_ms: take('age', parseDuration(draft.age), base.retention.age_ms),
      bytes: take('bytes', parseSize(draft.bytes), base.retention.bytes),
      records: take('records', parseCount(draft.records), base.retention.records),
      until_settled: draft.untilSettled,
    },
    compaction: draft.byKey ? 'key' : 'none',
    ttl_ms: take('ttl', parseDuration(draft.ttl), base.ttl_ms),
    dedupe: { window_ms: window ?? base.dedupe.window_ms },
    default_confirm: draft.defaultConfirm,
    min_confirm: draft.minConfirm,
    closed: draft.closed,
  };
  return { config, errors };
}
