import { useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { subscriptionUrl } from '../api/client';
import { createSubscription } from '../api/subscriptions';
import { listChanged } from '../api/topics';
import { useSettings } from '../app/settings';
import { changes, patchOf } from '../edit/changes';
import { CreateForm } from '../edit/create';
import { nameError } from '../edit/name';
import { instant, parseInstant, zoneName } from '../format/time';
import { Sheet } from '../ui/dialog';
import { Check, Choice, Field } from '../ui/field';
import { DEFAULTS, draftOf, readDraft } from './config';
import { ChoiceFields, LeaseFields, RetryFields, TopicField } from './fields';

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

type Start = 'earliest' | 'latest' | 'time';

const STARTS: readonly { id: Start; label: string; about: string }[] = [
  { id: 'earliest', label: 'the oldest message', about: 'everything that is stored' },
  { id: 'latest', label: 'the next message', about: 'nothing that is stored now' },
  { id: 'time', label: 'a time', about: 'everything from then on' },
];

function useStart() {
  const { zone } = useSettings();
  const [kind, setKind] = useState<Start>('earliest');
  const [time, setTime] = useState(() => instant(Date.now() - 3_600_000, zone).slice(0, 19));
  const ms = parseInstant(time, zone);
  const error = kind === 'time' && ms === null ? 'Like 2026-01-31 14:05:00' : null;
  return { kind, setKind, time, setTime, error, value: kind === 'time' ? `ts:${ms}` : kind, zone };
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

  const { config, errors } = readDraft(draft, DEFAULTS);
  const topics = topicsOf(topic);
  const badTopic = topicsError(topics);
  const order = byKey ? ('key' as const) : ('none' as const);
  const whole = { ...config, topics, start: start.value, order };
  const body = patchOf(changes(DEFAULTS, whole));
  const badFields = Object.keys(errors).length > 0;
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
      fields={(tried) => (
        <>
          <TopicField
            ns={ns}
            label="Topics"
            required
            value={topic}
            error={tried || topic !== given ? badTopic : null}
            hint="Their messages are the queue. Several with commas between, or a pattern like orders.* for all that begin so, also later. Cannot be changed later."
            onChange={setTopic}
          />
          <Choice label="Begin with" value={start.kind} options={STARTS} onChange={start.setKind} />
          {start.kind === 'time' && (
            <Field
              label={`Time, ${zoneName(start.zone)}`}
              mono
              value={start.time}
              error={start.error}
              onChange={start.setTime}
            />
          )}
        </>
      )}
      moreLabel="Filter, order, leases, retries and dead letters"
      moreOpen={badFields}
      more={
        <>
          <h3>Which messages, in which order</h3>
          <ChoiceFields {...fields} />
          <Check
            label="Keep the order of each key"
            checked={byKey}
            onChange={setByKey}
            hint="Of the messages of one key, one is leased at a time. Cannot be changed later."
          />
          <h3>Leases</h3>
          <LeaseFields {...fields} />
          <h3>Retries and dead letters</h3>
          <RetryFields ns={ns} {...fields} />
        </>
      }
    />
  );
}
