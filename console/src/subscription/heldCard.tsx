import { useMutation, useQueryClient } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useRef, useState } from 'react';
import type { Subscription } from '../api/client';
import { settle, settleRequest, subscriptionKey } from '../api/subscriptions';
import { curl } from '../curl/curl';
import { bytes, grouped } from '../format/number';
import { durationText, parsePause } from '../format/quantity';
import { lasting } from '../format/time';
import { isStream } from '../subscriptions/config';
import { BodyView } from '../topic/body';
import { CopyButton } from '../ui/copy';
import { Field } from '../ui/field';
import { useNow } from '../ui/now';
import { ProblemBox } from '../ui/problem';
import { type Act, change, type Entry, settledAs, settleOf } from './held';

/** Characters of a body that are shown here; the topic's page shows all of it. */
const BODY_CHARS = 4000;

export function HeldCard({ subscription, entry }: { subscription: Subscription; entry: Entry }) {
  const { ns, config } = subscription;
  const { held, fate, note } = entry;
  const { message } = held;
  const id = `${message.partition}:${message.offset}`;
  const place = useRef<HTMLElement>(null);
  return (
    <article
      className="held-card"
      data-tone={fate?.tone}
      aria-label={`Message ${id}`}
      ref={place}
      tabIndex={-1}
    >
      <div className="panel-row">
        <h3>
          <Link
            to="/ns/$ns/topics/$topic/messages"
            params={{ ns, topic: held.topic ?? config.topics[0] ?? '' }}
            search={{ open: id }}
            className="mono"
          >
            {held.topic && `${held.topic}:`}
            {message.partition}:{grouped(message.offset)}
          </Link>
        </h3>
        <span className="faint">
          {!isStream(config) && `attempt ${held.attempt}`}
          {config.max_attempts ? ` of ${config.max_attempts}` : ''} {!isStream(config) && '· '}fence{' '}
          <span className="mono">{held.fence}</span>
        </span>
        <span className="spacer" />
        <span role="status">
          {fate ? <span className="fate">{fate.text}</span> : <Left until={held.until} />}
        </span>
      </div>
      {!fate && (
        <>
          <Content entry={entry} />
          {note && <p className="note warn">{note}</p>}
          <Settling subscription={subscription} entry={entry} onPressed={() => place.current?.focus()} />
        </>
      )}
    </article>
  );
}

/** How long it is still held. */
function Left({ until }: { until: number }) {
  const now = useNow(500);
  if (until > now) return <span className="mono">{lasting(until - now)} left</span>;
  return (
    <span className="warn">The lease ran out. It settles still, unless somebody else was given it.</span>
  );
}

function Content({ entry: { held } }: { entry: Entry }) {
  const { message, body } = held;
  const about = [message.contentType ?? 'no content type', bytes(message.size)];
  return (
    <>
      <p className="faint">
        {message.key !== null && (
          <>
            key <span className="mono">{message.key}</span> ·{' '}
          </>
        )}
        {message.headers.map(([name, value]) => (
          <span key={name}>
            <span className="mono">
              {name}: {value}
            </span>{' '}
            ·{' '}
          </span>
        ))}
        {about.join(' · ')}
      </p>
      {body === null ? (
        <pre className="body-text">{message.preview}</pre>
      ) : (
        <BodyView text={body.slice(0, BODY_CHARS)} formatted={body.length <= BODY_CHARS} />
      )}
    </>
  );
}

interface SettlingProps {
  readonly subscription: Subscription;
  readonly entry: Entry;
  /** A button was pressed that may be gone next. */
  readonly onPressed: () => void;
}

function Settling({ subscription, entry, onPressed }: SettlingProps) {
  const { ns, name, id, config } = subscription;
  const { lease } = entry.held;
  const client = useQueryClient();
  const [reason, setReason] = useState('');
  const [delay, setDelay] = useState('');
  const pause = parsePause(delay);
  const wish = { reason, delay: pause.ok ? pause.value : null };
  const leaseMs = config.lease_ms ?? 0;
  const act = useMutation({
    mutationFn: (act: Act) => settle(ns, name, settleOf(act, lease, wish)),
    onSuccess: (results, act) => {
      const [result] = results;
      if (result) change(id, lease, (now) => settledAs(now, act, result, Date.now(), leaseMs));
      void client.invalidateQueries({ queryKey: subscriptionKey(ns, name) });
    },
  });
  const press = (what: Act) => {
    if (act.isPending || (what === 'nack' && !pause.ok)) return;
    if (what !== 'extend') onPressed();
    act.mutate(what);
  };
  const asCurl = (what: Act) => curl(settleRequest(ns, name, settleOf(what, lease, wish)));
  return (
    <div className="settling">
      <div className="actions">
        <button type="button" className="primary" aria-disabled={act.isPending} onClick={() => press('ack')}>
          {isStream(config) ? 'Ack up to here' : 'Ack'}
        </button>
        {!isStream(config) && (
          <>
            <button type="button" aria-disabled={act.isPending || !pause.ok} onClick={() => press('nack')}>
              Nack
            </button>
            <button type="button" aria-disabled={act.isPending} onClick={() => press('dead')}>
              Dead
            </button>
            <button type="button" aria-disabled={act.isPending} onClick={() => press('extend')}>
              Extend by {durationText(leaseMs)}
            </button>
          </>
        )}
        <span className="spacer" />
        <CopyButton text={() => asCurl('ack')} label="Ack as curl" />
        {!isStream(config) && <CopyButton text={() => asCurl('nack')} label="Nack as curl" />}
      </div>
      {!isStream(config) && (
        <div className="fields">
          <Field
            label="Reason, of nack and dead"
            value={reason}
            placeholder="none"
            maxLength={1000}
            onChange={setReason}
          />
          <Field
            label="Pause, of nack"
            mono
            value={delay}
            placeholder="as configured"
            error={pause.ok ? null : pause.why}
            onChange={setDelay}
          />
        </div>
      )}
      {act.error && <ProblemBox error={act.error} title="Nothing was settled" />}
    </div>
  );
}
