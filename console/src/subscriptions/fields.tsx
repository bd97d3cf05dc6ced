import { useId } from 'react';
import { useTopicNames } from '../api/topics';
import { type FieldsProps, setter } from '../edit/draft';
import { grouped } from '../format/number';
import { parseDuration } from '../format/quantity';
import { Check, Field } from '../ui/field';
import { type Draft, type DraftErrors, parseBackoff } from './config';

type Fields = FieldsProps<Draft, DraftErrors>;

export function LeaseFields({ draft, errors, onChange }: Fields) {
  const set = setter({ draft, onChange });
  const lease = parseDuration(draft.lease);
  return (
    <div className="fields">
      <Field
        label="Lease"
        mono
        value={draft.lease}
        error={errors.lease}
        hint={
          lease.ok && lease.value !== null
            ? `= ${grouped(lease.value)} ms, unless a pull says otherwise.`
            : 'How long a worker has.'
        }
        onChange={(value) => set('lease', value)}
      />
      <Field
        label="Leased at once, at most"
        mono
        inputMode="numeric"
        value={draft.unacked}
        error={errors.unacked}
        hint="Messages of each topic, all its partitions together."
        onChange={(value) => set('unacked', value)}
      />
    </div>
  );
}

/** Of a stream: how long a reader that pulls keeps its partitions. */
export function PatienceField({ draft, errors, onChange }: Fields) {
  const set = setter({ draft, onChange });
  return (
    <Field
      label="Silence, at most"
      mono
      value={draft.lease}
      error={errors.lease}
      hint="Then another may read in the place of one that pulls. Over WebSocket a reader has its place until it leaves."
      onChange={(value) => set('lease', value)}
    />
  );
}

export function RetryFields({ ns, draft, errors, onChange }: Fields & { readonly ns: string }) {
  const set = setter({ draft, onChange });
  const backoff = parseBackoff(draft.backoff);
  return (
    <div className="fields">
      <Field
        label="Attempts"
        mono
        inputMode="numeric"
        placeholder="no limit"
        value={draft.attempts}
        error={errors.attempts}
        hint="Deliveries until it is a dead letter. Empty: no limit."
        onChange={(value) => set('attempts', value)}
      />
      <Field
        label="Pauses between attempts"
        mono
        placeholder="none"
        value={draft.backoff}
        error={errors.backoff}
        hint={
          backoff.ok && backoff.list.length > 1
            ? 'Before delivery 2, 3 and so on; the last one repeats.'
            : 'Like 1s, 5s, 30s. Empty: at once.'
        }
        onChange={(value) => set('backoff', value)}
      />
      <TopicField
        ns={ns}
        label="Dead letter topic"
        placeholder="none"
        value={draft.dlq}
        error={errors.dlq}
        hint="Empty: dead letters are counted and dropped."
        onChange={(value) => set('dlq', value)}
      />
    </div>
  );
}

/** What is wrong with an expression is the gateway's to say: it names the byte. */
export function ChoiceFields({ draft, errors, onChange }: Fields) {
  const set = setter({ draft, onChange });
  return (
    <div className="fields">
      <Field
        label="Filter"
        mono
        placeholder="all messages"
        maxLength={1024}
        value={draft.filter}
        error={errors.filter}
        hint="Like header.region == 'eu*' and not key == 'test'. What does not match is settled undelivered."
        onChange={(value) => set('filter', value)}
      />
      <Field
        label="Take turns by"
        mono
        placeholder="nothing"
        maxLength={1024}
        value={draft.fairBy}
        error={errors.fairBy}
        hint="Like header.tenant, or key: nobody with a million messages holds up the others."
        onChange={(value) => set('fairBy', value)}
      />
    </div>
  );
}

export function PausedField({ draft, onChange }: Pick<Fields, 'draft' | 'onChange'>) {
  return (
    <Check
      label="Paused: deliver no messages"
      checked={draft.paused}
      onChange={(paused) => onChange({ ...draft, paused })}
      hint="What was delivered can still be settled."
    />
  );
}

interface TopicFieldProps {
  readonly ns: string;
  readonly label: string;
  readonly value: string;
  readonly error?: string | null | undefined;
  readonly hint?: string;
  readonly placeholder?: string;
  readonly autoFocus?: boolean;
  readonly required?: boolean;
  readonly onChange: (value: string) => void;
}

/** The name of a topic, with suggestions. */
export function TopicField({ ns, ...rest }: TopicFieldProps) {
  const id = useId();
  const names = useTopicNames(ns, rest.value.trim());
  return (
    <>
      <Field {...rest} mono list={id} />
      <datalist id={id}>
        {names.data?.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
    </>
  );
}
