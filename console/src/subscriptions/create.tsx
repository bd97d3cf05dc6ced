import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { type FormEvent, useState } from 'react';
import { subscriptionUrl } from '../api/client';
import { createSubscription } from '../api/subscriptions';
import { listChanged } from '../api/topics';
import { useSettings } from '../app/settings';
import { curl } from '../curl/curl';
import { changes, patchOf } from '../edit/changes';
import { nameError } from '../edit/name';
import { instant, parseInstant, zoneName } from '../format/time';
import { CopyButton } from '../ui/copy';
import { Sheet } from '../ui/dialog';
import { Check, Choice, Field } from '../ui/field';
import { ProblemBox } from '../ui/problem';
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
      <CreateForm onClose={onClose} {...rest} />
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

function CreateForm({ ns, topic: given, onClose }: Omit<CreateProps, 'open'>) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const [name, setName] = useState('');
  const [topic, setTopic] = useState(given);
  const start = useStart();
  const [draft, setDraft] = useState(() => draftOf(DEFAULTS));
  const [byKey, setByKey] = useState(false);
  const [tried, setTried] = useState(false);

  const { config, errors } = readDraft(draft, DEFAULTS);
  const badName = nameError(name);
  const badTopic = nameError(topic.trim());
  const order = byKey ? ('key' as const) : ('none' as const);
  const whole = { ...config, topics: [topic.trim()], start: start.value, order };
  const body = patchOf(changes(DEFAULTS, whole));
  const badFields = Object.keys(errors).length > 0;
  const wrong = badName !== null || badTopic !== null || start.error !== null || badFields;

  const create = useMutation({
    mutationFn: () => createSubscription(ns, name, body),
    onSuccess: async () => {
      await navigate({
        to: '/ns/$ns/subscriptions/$subscription',
        params: { ns, subscription: name },
      });
      await listChanged(client, ns, 'subscriptions');
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setTried(true);
    if (!wrong) create.mutate();
  };
  const command = () =>
    curl({
      method: 'PUT',
      url: subscriptionUrl(ns, name || 'NAME'),
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
    });

  return (
    <form onSubmit={submit} noValidate>
      <div className="fields">
        <Field
          label="Name"
          mono
          autoFocus
          required
          value={name}
          error={tried || name !== '' ? badName : null}
          hint="Letters, digits and . _ ~ -"
          onChange={setName}
        />
        <TopicField
          ns={ns}
          label="Topic"
          required
          value={topic}
          error={tried || topic !== given ? badTopic : null}
          hint="Its messages are the queue. Cannot be changed later."
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
      </div>
      <details className="more" open={badFields || undefined}>
        <summary>Filter, order, leases, retries and dead letters</summary>
        <h3>Which messages, in which order</h3>
        <ChoiceFields draft={draft} errors={errors} onChange={setDraft} />
        <Check
          label="Keep the order of each key"
          checked={byKey}
          onChange={setByKey}
          hint="Of the messages of one key, one is leased at a time. Cannot be changed later."
        />
        <h3>Leases</h3>
        <LeaseFields ns={ns} draft={draft} errors={errors} onChange={setDraft} />
        <h3>Retries and dead letters</h3>
        <RetryFields ns={ns} draft={draft} errors={errors} onChange={setDraft} />
      </details>
      {create.error && <ProblemBox error={create.error} title="The subscription was not created" />}
      <div className="actions">
        <CopyButton text={command} label="Copy as curl" />
        <span className="spacer" />
        <button type="button" onClick={onClose}>
          Cancel
        </button>
        <button type="submit" className="primary" disabled={create.isPending}>
          {create.isPending ? 'Creating …' : 'Create subscription'}
        </button>
      </div>
    </form>
  );
}
