import { useService } from '../api/topics';
import { type FieldsProps, setter } from '../edit/draft';
import { grouped } from '../format/number';
import { parseDuration, parseSize } from '../format/quantity';
import { Check, Choice, Field } from '../ui/field';
import type { Draft, DraftErrors } from './config';
import { useLevels } from './levels';

type Fields = FieldsProps<Draft, DraftErrors>;

export function SafetyFields({ draft, onChange }: Fields) {
  const set = setter({ draft, onChange });
  const confirms = useLevels(draft.defaultConfirm);
  const floors = useLevels(draft.minConfirm);
  return (
    <div className="fields">
      <Choice
        label="Confirm publishes at"
        value={draft.defaultConfirm}
        options={confirms}
        onChange={(level) => set('defaultConfirm', level)}
        hint="For publishes that name no level."
      />
      <Choice
        label="Refuse publishes below"
        value={draft.minConfirm}
        options={floors.map((level) =>
          level.id === 'none' ? { ...level, label: 'no floor', about: '' } : level,
        )}
        onChange={(level) => set('minConfirm', level)}
      />
    </div>
  );
}

export function RetentionFields({ draft, errors, onChange }: Fields) {
  const set = setter({ draft, onChange });
  const levels = useService().data?.levels;
  return (
    <div className="fields">
      <Field
        label="Remove after"
        mono
        placeholder="never"
        value={draft.age}
        error={errors.age}
        hint={exactly(parseDuration(draft.age), 'ms') ?? 'Age, like 7d or 36h. Empty: never.'}
        onChange={(value) => set('age', value)}
      />
      <Field
        label="Keep at most, per partition"
        mono
        placeholder="no limit"
        value={draft.bytes}
        error={errors.bytes}
        hint={exactly(parseSize(draft.bytes), 'B') ?? 'Size, like 10 GiB. Empty: no limit.'}
        onChange={(value) => set('bytes', value)}
      />
      <Field
        label="Messages at most, per partition"
        mono
        placeholder="no limit"
        value={draft.records}
        error={errors.records}
        hint="A number. Empty: no limit."
        onChange={(value) => set('records', value)}
      />
      <Check
        label="Remove what every subscription has settled"
        checked={draft.untilSettled}
        onChange={(untilSettled) => set('untilSettled', untilSettled)}
        hint="A seek does not bring it back. Without subscriptions everything is kept."
      />
      <Check
        label="Keep only the newest message of each key"
        checked={draft.byKey}
        error={errors.byKey}
        onChange={(byKey) => set('byKey', byKey)}
        hint={
          levels?.includes('archived') === false
            ? 'Needs an object store, and storage has none.'
            : 'Older ones go, for good, within about a day of being in the object store. An empty message deletes its key; messages without a key stay.'
        }
      />
    </div>
  );
}

export function OtherFields({ draft, errors, onChange }: Fields) {
  const set = setter({ draft, onChange });
  return (
    <div className="fields">
      <Field
        label="Time to live in queues"
        mono
        placeholder="never"
        value={draft.ttl}
        error={errors.ttl}
        hint={
          exactly(parseDuration(draft.ttl), 'ms') ??
          'For queue subscriptions, unless a message says otherwise. Readers are shown it longer.'
        }
        onChange={(value) => set('ttl', value)}
      />
      <Field
        label="Remember idempotency keys for"
        mono
        value={draft.dedupe}
        error={errors.dedupe}
        hint={exactly(parseDuration(draft.dedupe), 'ms')}
        onChange={(value) => set('dedupe', value)}
      />
      <Field
        label="Content type"
        mono
        placeholder="as published"
        value={draft.contentType}
        error={errors.contentType}
        hint="Of messages that name none, when they are published."
        onChange={(value) => set('contentType', value)}
      />
    </div>
  );
}

export function ClosedField({ draft, onChange }: Fields) {
  return (
    <Check
      label="Closed: accept no more messages"
      checked={draft.closed}
      onChange={(closed) => onChange({ ...draft, closed })}
      hint="What is stored stays readable."
    />
  );
}

/** `= 604,800,000 ms`, so that a unit is never taken for another. */
function exactly(quantity: ReturnType<typeof parseDuration>, unit: string): string | null {
  return quantity.ok && quantity.value !== null ? `= ${grouped(quantity.value)} ${unit}` : null;
}
