import { useQueryClient } from '@tanstack/react-query';
import { Link, useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { type SubscriptionConfig, subscriptionUrl } from '../api/client';
import { createSubscription } from '../api/subscriptions';
import { listChanged } from '../api/topics';
import { useSettings } from '../app/settings';
import { changes, patchOf } from '../edit/changes';
import { CreateForm } from '../edit/create';
import type { FieldsProps } from '../edit/draft';
import { nameError } from '../edit/name';
import { TimeField } from '../edit/time';
import { parseInstant, secondAgo } from '../format/time';
import { Sheet } from '../ui/dialog';
import { Check, Choice, Field } from '../ui/field';
import { asStream, DEFAULTS, type Draft, type DraftErrors, draftOf, readDraft } from './config';
import { ChoiceFields, LeaseFields, PatienceField, RetryFields, TopicField } from './fields';

interface CreateProps {
  readonly ns: string;
  /** The topic that it was asked for; empty if it was not. */
  readonly topic: string;
  readonly open: boolean;
  readonly onClose: () => void;
}

export function CreateSubscription({ open, onClose, ...rest }: CreateProps) {
  return (
    <Sheet title="Create a subscription" open={open} onClose={onClose}>
      <SubscriptionForm onClose={onClose} {...rest} />
    </Sheet>
  );
}

type Start = 'earliest' | 'latest' | 'time' | 'tail' | 'offset';

const STARTS: readonly { id: Start; label: string; about: string }[] = [
  { id: 'earliest', label: 'the oldest message', about: 'everything that is stored' },
  { id: 'latest', label: 'the next message', about: 'nothing that is stored now' },
  { id: 'time', label: 'a time', about: 'everything from then on' },
];

const STREAM_STARTS: typeof STARTS = [
  ...STARTS,
  { id: 'tail', label: 'the last messages', about: 'so many of each partition' },
  { id: 'offset', label: 'an offset', about: 'of each partition; the nearest that is there' },
];

type Mode = SubscriptionConfig['mode'];

const MODES: readonly { id: NonNullable<Mode>; label: string; about: string }[] = [
  { id: 'queue', label: 'a work queue', about: 'each message is leased to one worker' },
  { id: 'stream', label: 'a stream', about: 'read in order, acknowledged up to a message' },
];

function useStart() {
  const { zone } = useSettings();
  const [kind, setKind] = useState<Start>('earliest');
  const [time, setTime] = useState(() => secondAgo(3_600_000, zone));
  const [number, setNumber] = useState('100');
  const ms = parseInstant(time, zone);
  const isNumber = kind === 'tail' || kind === 'offset';
  const badTime = kind === 'time' && ms === null ? 'Like 2026-01-31 14:05:00' : null;
  const badNumber = isNumber && !/^\d{1,15}$/.test(number.trim()) ? 'A number, like 100' : null;
  const values = { time: `ts:${ms}`, tail: `tail:${number.trim()}`, offset: number.trim() };
  const value = kind === 'earliest' || kind === 'latest' ? kind : values[kind];
  const error = badTime ?? badNumber;
  return { kind, setKind, time, setTime, number, setNumber, isNumber, error, value };
}

/** What is typed, with commas between. */
const topicsOf = (text: string) => text.split(',').map((topic) => topic.trim());

/** One pattern, or names. */
function topicsError(topics: readonly string[]): string | null {
  const [only] = topics;
  if (topics.length === 1 && only?.endsWith('*'))
    return only === '*' ? null : nameError(`${only.slice(0, -1)}x`);
  return topics.map(nameError).find((error) => error !== null) ?? null;
}

function SubscriptionForm({ ns, topic: given, onClose }: Omit<CreateProps, 'open'>) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const [topic, setTopic] = useState(given);
  const start = useStart();
  const [draft, setDraft] = useState(() => draftOf(DEFAULTS));
  const [byKey, setByKey] = useState(false);
  const [mode, setMode] = useState<NonNullable<Mode>>('queue');
  const isStream = mode === 'stream';

  const { config, errors } = readDraft(draft, DEFAULTS);
  const topics = topicsOf(topic);
  const badTopic = topicsError(topics);
  const order = byKey ? ('key' as const) : ('none' as const);
  const queue = { ...config, topics, start: start.value, order };
  const body = patchOf(changes(DEFAULTS, isStream ? asStream(queue) : queue));
  const badFields = isStream ? errors.lease !== undefined : Object.keys(errors).length > 0;
  const fields = { draft, errors, onChange: setDraft };
  return (
    <CreateForm
      noun="subscription"
      body={body}
      wrong={badTopic !== null || start.error !== null || badFields}
      url={(name) => subscriptionUrl(ns, name)}
      create={(name) => createSubscription(ns, name, body)}
      onCreated={async (subscription) => {
        await navigate({ to: '/ns/$ns/subscriptions/$subscription', params: { ns, subscription } });
        await listChanged(client, ns, 'subscriptions');
      }}
      onClose={onClose}
      linkTo={(subscription) => (
        <Link to="/ns/$ns/subscriptions/$subscription" params={{ ns, subscription }} className="mono">
          {subscription}
        </Link>
      )}
      fields={(tried) => (
        <>
          <TopicField
            ns={ns}
            label="Topics"
            required
            value={topic}
            error={tried || topic !== given ? badTopic : null}
            hint="Their messages are delivered. Several with commas between, or a pattern like orders.* for all that begin so, also later. Cannot be changed later."
            onChange={setTopic}
          />
          <Choice
            label="Deliver as"
            value={mode}
            options={MODES}
            onChange={(next) => {
              setMode(next);
              if (next === 'queue' && start.isNumber) start.setKind('earliest');
            }}
          />
          <StartFields start={start} options={isStream ? STREAM_STARTS : STARTS} />
        </>
      )}
      moreLabel={
        isStream ? 'How long a reader may be silent' : 'Filter, order, leases, retries and dead letters'
      }
      moreOpen={badFields}
      more={
        isStream ? (
          <PatienceField {...fields} />
        ) : (
          <QueueFields ns={ns} byKey={byKey} onByKey={setByKey} {...fields} />
        )
      }
    />
  );
}

interface StartFieldsProps {
  readonly start: ReturnType<typeof useStart>;
  readonly options: typeof STARTS;
}

function StartFields({ start, options }: StartFieldsProps) {
  return (
    <>
      <Choice label="Begin with" value={start.kind} options={options} onChange={start.setKind} />
      {start.isNumber && (
        <Field
          label={start.kind === 'tail' ? 'Messages of each partition' : 'Offset'}
          mono
          inputMode="numeric"
          value={start.number}
          error={start.error}
          onChange={start.setNumber}
        />
      )}
      {start.kind === 'time' && <TimeField value={start.time} error={start.error} onChange={start.setTime} />}
    </>
  );
}

interface QueueFieldsProps extends FieldsProps<Draft, DraftErrors> {
  readonly ns: string;
  readonly byKey: boolean;
  readonly onByKey: (byKey: boolean) => void;
}

/** What only a work queue has. */
function QueueFields({ ns, byKey, onByKey, ...fields }: QueueFieldsProps) {
  return (
    <>
      <h3>Which messages, in which order</h3>
      <ChoiceFields {...fields} />
      <Check
        label="Keep the order of each key"
        checked={byKey}
        onChange={onByKey}
        hint="Of the messages of one key, one is leased at a time. Cannot be changed later."
      />
      <h3>Leases</h3>
      <LeaseFields {...fields} />
      <h3>Retries and dead letters</h3>
      <RetryFields ns={ns} {...fields} />
    </>
  );
}
