import { useMutation, useQueryClient } from '@tanstack/react-query';
import { Link, useParams } from '@tanstack/react-router';
import { type FormEvent, useRef, useState } from 'react';
import type { Subscription } from '../api/client';
import { pull, pullRequest, subscriptionKey, useSubscription } from '../api/subscriptions';
import { curl } from '../curl/curl';
import { counted, grouped } from '../format/number';
import { parseDuration } from '../format/quantity';
import { isStream } from '../subscriptions/config';
import { CopyButton } from '../ui/copy';
import { Field } from '../ui/field';
import { ProblemBox } from '../ui/problem';
import { hold, tidy, useHeld } from './held';
import { HeldCard } from './heldCard';

/** Messages that one press leases at most. */
const PULL_MAX = 10;

/** Leases messages by hand and settles them: what a worker does, to be looked at. */
export function TryTab() {
  const { ns, subscription: name } = useParams({ from: '/ns/$ns/subscriptions/$subscription' });
  const subscription = useSubscription(ns, name).data?.subscription;
  return subscription ? <Trial key={subscription.id} subscription={subscription} /> : null;
}

function Trial({ subscription }: { subscription: Subscription }) {
  const { id } = subscription;
  const entries = useHeld(id);
  const place = useRef<HTMLDivElement>(null);
  // The button goes with what it clears.
  const clear = () => {
    place.current?.focus();
    tidy(id);
  };
  const done = entries.filter(({ fate }) => fate !== null).length;
  return (
    <div className="tab-body" ref={place} tabIndex={-1}>
      <TakeForm subscription={subscription} />
      {entries.length > 0 && (
        <section aria-labelledby="held" className="held">
          <div className="panel-row">
            <h2 id="held">Taken by this page</h2>
            <span className="spacer" />
            <button type="button" disabled={done === 0} onClick={clear}>
              Clear settled
            </button>
          </div>
          {entries.map((entry) => (
            <HeldCard key={entry.held.lease} subscription={subscription} entry={entry} />
          ))}
        </section>
      )}
    </div>
  );
}

/** How many to take and for how long, or what is wrong with either. */
function readTaking(max: string, lease: string) {
  const count = /^\d{1,2}$/.test(max.trim()) ? Number(max) : 0;
  const duration = parseDuration(lease);
  return {
    wish: { max: count, ...(duration.ok && duration.value !== null && { lease_ms: duration.value }) },
    badMax: count >= 1 && count <= PULL_MAX ? null : `From 1 to ${PULL_MAX}.`,
    badLease: duration.ok ? null : duration.why,
  };
}

function TakeForm({ subscription }: { subscription: Subscription }) {
  const { ns, name, id, config, totals } = subscription;
  const client = useQueryClient();
  const [max, setMax] = useState('1');
  const [lease, setLease] = useState('');
  const { wish, badMax, badLease } = readTaking(max, lease);
  const take = useMutation({
    mutationFn: () => pull(ns, name, wish),
    onSuccess: (held) => {
      hold(id, held);
      void client.invalidateQueries({ queryKey: subscriptionKey(ns, name) });
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!badMax && !badLease && !take.isPending) take.mutate();
  };
  return (
    <form onSubmit={submit} className="try" noValidate>
      <p className="lead">
        {isStream(config)
          ? 'Reads as a consumer does, from the cursor on: nobody else reads those partitions until this page was silent for a time.'
          : 'Takes messages as a worker does: nobody else is given them until the lease ends, and each taking is an attempt.'}
      </p>
      <div className="try-fields">
        <Field
          label="Messages"
          mono
          inputMode="numeric"
          value={max}
          error={badMax}
          hint={`${grouped(totals.ready)} ready now`}
          onChange={setMax}
        />
        <Field
          label="Lease for"
          mono
          placeholder={`${grouped(config.lease_ms ?? 0)} ms`}
          value={lease}
          error={badLease}
          hint="Like 2m. Empty: as configured."
          onChange={setLease}
        />
        <div className="actions">
          <button type="submit" className="primary" aria-disabled={take.isPending}>
            {take.isPending ? 'Asking …' : isStream(config) ? 'Read' : 'Lease'}
          </button>
          <CopyButton text={curl(pullRequest(ns, name, wish))} label="curl" />
        </div>
      </div>
      <div aria-live="polite">
        {take.error && <ProblemBox error={take.error} />}
        {take.data?.length === 0 && <Nothing subscription={subscription} />}
        {take.data && take.data.length > 0 && (
          <p className="note">{counted(take.data.length, 'message')} given to this page.</p>
        )}
      </div>
    </form>
  );
}

/** Why there was none to be had. */
function Nothing({ subscription }: { subscription: Subscription }) {
  const { ns, name, config, totals } = subscription;
  const topic = config.topics[0] ?? '';
  if (config.paused) return <p>It is paused: nothing is leased. Resume it first.</p>;
  if (totals.leased + totals.delayed > 0) {
    return (
      <p>
        There was none to be had: {grouped(totals.leased)} leased, {grouped(totals.delayed)} waiting for their
        time.{' '}
        <Link to="/ns/$ns/subscriptions/$subscription/leases" params={{ ns, subscription: name }}>
          See who holds them
        </Link>
      </p>
    );
  }
  // A pattern says nothing of which topics there are.
  if (topic === '' || topic.endsWith('*')) return <p>There was none to be had.</p>;
  return (
    <p>
      There was none to be had.{' '}
      <Link to="/ns/$ns/topics/$topic" params={{ ns, topic }} search={{ publish: true }}>
        Publish one to {topic}
      </Link>
    </p>
  );
}
