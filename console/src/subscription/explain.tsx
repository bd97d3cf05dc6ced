import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { type FormEvent, useState } from 'react';
import { type Explained, type Subscription, subscriptionUrl } from '../api/client';
import { explain } from '../api/subscriptions';
import { curl } from '../curl/curl';
import { lasting } from '../format/time';
import { CopyButton } from '../ui/copy';
import { Field } from '../ui/field';
import { Loading, ProblemBox } from '../ui/problem';
import { idError, reasonText, standing } from './reasons';

interface ExplainProps {
  readonly subscription: Subscription;
  /** The message that is asked about first; empty: none. */
  readonly first: string;
  readonly onClose: () => void;
}

/** Where one message stands, who has it, and what keeps it there. Asking changes nothing. */
export function ExplainForm({ subscription, first, onClose }: ExplainProps) {
  const { ns, name, config } = subscription;
  const [typed, setTyped] = useState(first);
  const [id, setId] = useState(first);
  const wrong = idError(typed.trim());
  const query = useQuery({
    queryKey: ['explain', ns, name, id],
    queryFn: ({ signal }) => explain(ns, name, id, signal),
    enabled: id !== '' && idError(id) === null,
    // Asked anew each time: it is about this moment.
    staleTime: 0,
    gcTime: 0,
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (wrong !== null) return;
    if (typed.trim() === id) void query.refetch();
    setId(typed.trim());
  };
  return (
    <form onSubmit={submit} noValidate>
      <Field
        label="Message"
        mono
        autoFocus
        value={typed}
        error={typed === '' ? null : wrong}
        hint="Partition and offset, as 0:76531; of several topics with the topic before."
        onChange={setTyped}
      />
      <div aria-live="polite" className="seek-answer">
        {query.isLoading && <Loading what={id} />}
        {query.error && <ProblemBox error={query.error} title="It could not be explained" />}
        {query.data && !query.error && (
          <Answer ns={ns} topic={config.topics[0] ?? ''} explained={query.data} />
        )}
      </div>
      <div className="actions">
        <CopyButton
          text={() => curl({ url: `${subscriptionUrl(ns, name)}/explain?id=${typed.trim() || '0:0'}` })}
          label="Copy as curl"
        />
        <span className="spacer" />
        <button type="button" onClick={onClose}>
          Close
        </button>
        <button type="submit" className="primary" disabled={wrong !== null}>
          Explain
        </button>
      </div>
    </form>
  );
}

function Answer({ ns, topic, explained }: { ns: string; topic: string; explained: Explained }) {
  const { id, state, partition, offset, reasons, pulled_ms_ago: pulled } = explained;
  return (
    <section className="impact" aria-label="Explanation">
      <p>
        <Link
          to="/ns/$ns/topics/$topic/messages"
          params={{ ns, topic: explained.topic ?? topic }}
          search={{ open: `${partition}:${offset}`, partition, from: String(offset) }}
          className="mono"
        >
          {id}
        </Link>{' '}
        is <strong>{state}</strong>. {standing(explained)}
      </p>
      {reasons.length > 0 && (
        <ul>
          {reasons.map((reason) => (
            <li key={reason}>{reasonText(reason)}</li>
          ))}
        </ul>
      )}
      <p className="note">
        {pulled == null
          ? 'Nobody has pulled from this partition so far.'
          : `Last pulled ${lasting(pulled)} ago.`}
      </p>
    </section>
  );
}
