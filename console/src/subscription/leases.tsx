import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { type LeasedRecord, subscriptionUrl } from '../api/client';
import { useLeases, useSubscription } from '../api/subscriptions';
import { curl } from '../curl/curl';
import { counted, grouped } from '../format/number';
import { ago, lasting } from '../format/time';
import { CopyButton } from '../ui/copy';
import { useNow } from '../ui/now';
import { Loading, ProblemBox } from '../ui/problem';
import { numeric, ScrollTable } from '../ui/table';
import { ExplainLink } from './explainLink';

/** Who holds what since when, and what waits for its time. Looking takes nothing. */
export function LeasesTab() {
  const { ns, subscription: name } = useParams({ from: '/ns/$ns/subscriptions/$subscription' });
  const { cursor } = useSearch({ from: '/ns/$ns/subscriptions/$subscription/leases' });
  const navigate = useNavigate({ from: '/ns/$ns/subscriptions/$subscription/leases' });
  const now = useNow(500);
  const topic = useSubscription(ns, name).data?.subscription.config.topics[0] ?? '';
  const leases = useLeases(ns, name, cursor);
  const go = (to: string | undefined) => void navigate({ search: (before) => ({ ...before, cursor: to }) });
  const items = leases.data?.items ?? [];
  const next = leases.data?.next;
  const url = `${subscriptionUrl(ns, name)}/leases${cursor ? `?cursor=${cursor}` : ''}`;
  return (
    <div className="tab-body">
      <div className="toolbar">
        <span className="faint" role="status">
          {leases.isSuccess &&
            `${counted(items.length, 'message')} leased or delayed${cursor || next ? ', on this page' : ''}`}
        </span>
        <span className="spacer" />
        <span className="faint">{leases.dataUpdatedAt > 0 && `read ${ago(leases.dataUpdatedAt, now)}`}</span>
        <CopyButton text={curl({ url })} label="curl" />
        {(cursor !== undefined || next) && (
          <>
            {/* Not disabled, also at an end: who walks with them would lose the focus there. */}
            <button
              type="button"
              aria-disabled={cursor === undefined}
              onClick={() => cursor === undefined || go(undefined)}
            >
              First page
            </button>
            <button type="button" aria-disabled={!next} onClick={() => next && go(next)}>
              Next page
            </button>
          </>
        )}
      </div>
      {leases.isPending && <Loading what="leases" />}
      {leases.error && <ProblemBox error={leases.error} onRetry={() => void leases.refetch()} />}
      {leases.isSuccess && items.length === 0 && (
        <p>
          Nothing is leased, and nothing waits for its time.{' '}
          <Link to="/ns/$ns/subscriptions/$subscription/try" params={{ ns, subscription: name }}>
            Try it
          </Link>
        </p>
      )}
      {items.length > 0 && (
        <LeaseTable ns={ns} topic={topic} items={items} passed={Math.max(0, now - leases.dataUpdatedAt)} />
      )}
    </div>
  );
}

interface TableProps {
  readonly ns: string;
  readonly topic: string;
  readonly items: readonly LeasedRecord[];
  /** Milliseconds since it was read: spans go on by themselves. */
  readonly passed: number;
}

function LeaseTable({ ns, topic, items, passed }: TableProps) {
  return (
    <ScrollTable
      label="Leases"
      heads={['Message', 'State', 'Holder', ...['Attempt', 'Held for', 'Until', 'Fence'].map(numeric), 'Why']}
    >
      {items.map((item) => (
        <LeaseRow key={item.id} ns={ns} topic={topic} item={item} passed={passed} />
      ))}
    </ScrollTable>
  );
}

function LeaseRow({ ns, topic, item, passed }: Omit<TableProps, 'items'> & { item: LeasedRecord }) {
  const left = item.lease_expires_in_ms ?? item.delayed_ms ?? 0;
  const leased = item.lease_expires_in_ms !== undefined;
  return (
    <tr>
      <th scope="row">
        <Link
          to="/ns/$ns/topics/$topic/messages"
          params={{ ns, topic: item.topic ?? topic }}
          search={{
            open: `${item.partition}:${item.offset}`,
            partition: item.partition,
            from: String(item.offset),
          }}
          className="mono"
        >
          {item.topic && `${item.topic}:`}
          {item.partition}:{grouped(item.offset)}
        </Link>
      </th>
      <td>
        <span className="state" data-tone={leased ? 'ok' : 'idle'}>
          {leased ? 'leased' : 'delayed'}
        </span>
      </td>
      <td className="mono">{item.holder || <span className="faint">{leased ? 'did not say' : '–'}</span>}</td>
      <td className="numeric">{item.attempts}</td>
      <td className="numeric">{item.age_ms === undefined ? '–' : lasting(item.age_ms + passed)}</td>
      <td className="numeric">{left > passed ? `${lasting(left - passed)} more` : 'now'}</td>
      <td className="numeric mono faint">{item.fence ?? '–'}</td>
      <td>
        <ExplainLink id={item.id} />
      </td>
    </tr>
  );
}
