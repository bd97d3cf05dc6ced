import { Link, useParams } from '@tanstack/react-router';
import { useRef } from 'react';
import type { Subscription } from '../api/client';
import { useSubscription } from '../api/subscriptions';
import { useSettings } from '../app/settings';
import { counted, grouped, rate } from '../format/number';
import { durationText } from '../format/quantity';
import { age, ago, instant, zoneName } from '../format/time';
import { backoffText, isStream } from '../subscriptions/config';
import { unknownParts, verdict } from '../subscriptions/verdict';
import { useNow } from '../ui/now';
import { Sparkline } from '../ui/sparkline';
import { Tile, useSeries } from '../ui/tile';
import { type Flow, flowOf, type Mark, markOf } from './flow';
import { Holdings } from './holdings';
import { TopicLinks } from './page';
import { Parts } from './parts';

export function OverviewTab() {
  const { ns, subscription: name } = useParams({ from: '/ns/$ns/subscriptions/$subscription' });
  const query = useSubscription(ns, name);
  const now = useNow(1000);
  const subscription = query.data?.subscription;
  const flow = useFlow(subscription, query.dataUpdatedAt);
  const depth = useSeries(subscription?.totals.unsettled, query.dataUpdatedAt);
  const settled = useSeries(flow?.settled, query.dataUpdatedAt);
  if (!subscription) return null;
  const { totals, config } = subscription;
  const { tone, word, sentence } = verdict(subscription);
  const unknown = unknownParts(subscription);
  const least = (value: number) => {
    if (unknown === subscription.parts.length) return 'unknown';
    return unknown > 0 ? `≥ ${grouped(value)}` : grouped(value);
  };
  return (
    <div className="tab-body">
      <p className="verdict" data-tone={tone} role="status">
        <strong>{word.charAt(0).toUpperCase() + word.slice(1)}</strong> {sentence}{' '}
        <Next ns={ns} name={name} word={word} />
      </p>
      <div className="tiles">
        <Tile
          label={isStream(config) ? 'Lag' : 'Depth'}
          value={least(totals.unsettled)}
          note={isStream(config) ? 'messages not acknowledged' : 'messages not settled'}
        >
          <Sparkline values={depth} label="Depth over the last two minutes" />
        </Tile>
        <Tile
          label={isStream(config) ? 'Acknowledged' : 'Settled'}
          value={flow ? `${rate(flow.settled)} /s` : '–'}
          note={flow ? `${rate(flow.arrived)} /s come in` : 'measuring'}
        >
          <Sparkline values={settled} label="Settled per second over the last two minutes" />
        </Tile>
        <Tile
          label="Oldest"
          value={totals.oldest_ms == null ? '–' : age(totals.oldest_ms, now)}
          note={totals.oldest_ms == null ? 'nothing waits' : 'since it was published'}
        />
        {isStream(config) ? (
          <Readers subscription={subscription} />
        ) : (
          <Tile
            label="Dead letters so far"
            value={least(totals.dead)}
            tone={totals.dead > 0 ? 'bad' : undefined}
            note={
              <Link to="/ns/$ns/subscriptions/$subscription/dead" params={{ ns, subscription: name }}>
                {config.dlq ? `look at them in ${config.dlq}` : 'counted and dropped'}
              </Link>
            }
          />
        )}
      </div>
      {!isStream(config) && <Holdings subscription={subscription} />}
      <Parts subscription={subscription} />
      <Facts subscription={subscription} updatedAt={query.dataUpdatedAt} />
    </div>
  );
}

/** Who reads a stream. */
function Readers({ subscription: { parts } }: { subscription: Subscription }) {
  const readers = new Set(parts.flatMap(({ reader }) => reader ?? []));
  const read = parts.filter(({ reader }) => reader != null).length;
  return (
    <Tile
      label="Readers"
      value={grouped(readers.size)}
      note={`of ${grouped(read)} of ${counted(parts.length, 'partition')}`}
    />
  );
}

/** Where to look next. */
function Next({ ns, name, word }: { ns: string; name: string; word: string }) {
  const params = { ns, subscription: name };
  if (word === 'not taken') {
    return (
      <Link to="/ns/$ns/subscriptions/$subscription/try" params={params}>
        Take one by hand
      </Link>
    );
  }
  if (word === 'active' || word === 'full' || word === 'waiting') {
    return (
      <Link to="/ns/$ns/subscriptions/$subscription/leases" params={params}>
        Who holds what
      </Link>
    );
  }
  return null;
}

/** Messages per second between the last two times it was read. */
function useFlow(subscription: Subscription | undefined, at: number): Flow | undefined {
  const marks = useRef<{ last: Mark | undefined; flow: Flow | undefined }>({
    last: undefined,
    flow: undefined,
  });
  const mark = subscription && markOf(subscription, at);
  const { last } = marks.current;
  if (mark && mark.at !== last?.at) {
    marks.current = { last: mark, flow: last && flowOf(last, mark) };
  }
  return marks.current.flow;
}

function Facts({ subscription, updatedAt }: { subscription: Subscription; updatedAt: number }) {
  const { zone } = useSettings();
  const now = useNow(1000);
  const { ns, config, created_ms, forked_from: origin, id, version } = subscription;
  const attempts = config.max_attempts ? counted(config.max_attempts, 'attempt') : 'any number of attempts';
  const pauses = config.backoff_ms?.length ? `, ${backoffText(config.backoff_ms)} apart` : ', at once';
  return (
    <dl className="facts">
      <dt>Topic</dt>
      <dd>
        <TopicLinks ns={ns} topics={config.topics} />,{' '}
        {origin ? (
          <>
            begun as <code>{origin.name}</code> at <code>{origin.at}</code>
          </>
        ) : (
          <>
            begun at <code>{config.start}</code>
          </>
        )}
      </dd>
      {(config.filter || config.fair_by || config.order === 'key') && (
        <>
          <dt>Messages</dt>
          <dd>
            {config.filter ? <code>{config.filter}</code> : 'all'}
            {config.fair_by && (
              <>
                , in turns by <code>{config.fair_by}</code>
              </>
            )}
            {config.order === 'key' && ', each key in its order'}
          </dd>
        </>
      )}
      {isStream(config) ? (
        <>
          <dt>Silence</dt>
          <dd>at most {durationText(config.lease_ms)}, of a reader that pulls</dd>
        </>
      ) : (
        <>
          <dt>Lease</dt>
          <dd>
            {durationText(config.lease_ms)}, {attempts}
            {pauses}
          </dd>
          <dt>Dead letters</dt>
          <dd>{config.dlq ? <TopicLinks ns={ns} topics={[config.dlq]} /> : 'counted and dropped'}</dd>
        </>
      )}
      <dt>Created</dt>
      <dd title={ago(created_ms, now)}>
        {instant(created_ms, zone)} {zoneName(zone)}
      </dd>
      <dt>Id</dt>
      <dd className="mono">
        {id} <span className="faint">version {version}</span>
      </dd>
      <dt>Read</dt>
      <dd>{ago(updatedAt, now)}</dd>
    </dl>
  );
}
