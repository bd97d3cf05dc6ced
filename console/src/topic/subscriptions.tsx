import { Link, useNavigate, useParams } from '@tanstack/react-router';
import type { Subscription } from '../api/client';
import { subscriptionListing } from '../api/subscriptions';
import { counted, grouped } from '../format/number';
import { age } from '../format/time';
import { useList } from '../list/pages';
import { QueueQuickStart } from '../subscriptions/quickstart';
import { State } from '../subscriptions/state';
import { useNow } from '../ui/now';
import { Loading, ProblemBox } from '../ui/problem';
import { numeric, ScrollTable } from '../ui/table';

/** Who consumes this topic. */
export function SubscriptionsTab() {
  const { ns, topic } = useParams({ from: '/ns/$ns/topics/$topic' });
  const navigate = useNavigate();
  const { list, rows, complete } = useList(subscriptionListing(ns, '', topic));
  const create = () =>
    void navigate({ to: '/ns/$ns/subscriptions', params: { ns }, search: { create: true, topic } });
  if (list.isPending) return <Loading what="subscriptions" />;
  if (list.error && rows.length === 0)
    return <ProblemBox error={list.error} onRetry={() => void list.refetch()} />;
  if (rows.length === 0) {
    return (
      <div className="tab-body narrow">
        <p>Nobody takes messages from this topic as a queue. One minute takes you from here to a worker.</p>
        <QueueQuickStart ns={ns} topic={topic} />
      </div>
    );
  }
  return (
    <div className="tab-body">
      <div className="toolbar">
        <span role="status">
          {counted(rows.length, 'subscription')}
          {!complete && ' shown'}
        </span>
        <span className="spacer" />
        {!complete && (
          <Link to="/ns/$ns/subscriptions" params={{ ns }} search={{ topic }}>
            All of them
          </Link>
        )}
        <button type="button" onClick={create}>
          Create subscription
        </button>
      </div>
      <Table ns={ns} rows={rows} />
    </div>
  );
}

function Table({ ns, rows }: { ns: string; rows: readonly Subscription[] }) {
  const now = useNow(1000);
  return (
    <ScrollTable
      label="Subscriptions"
      heads={['Name', 'State', ...['Depth', 'Ready', 'Leased', 'Delayed', 'Dead', 'Oldest'].map(numeric)]}
    >
      {rows.map((row) => (
        <tr key={row.name}>
          <th scope="row">
            <Link
              to="/ns/$ns/subscriptions/$subscription"
              params={{ ns, subscription: row.name }}
              className="mono"
            >
              {row.name}
            </Link>
          </th>
          <td>
            <State subscription={row} />
          </td>
          <td className="numeric">{grouped(row.totals.unsettled)}</td>
          <td className="numeric">{grouped(row.totals.ready)}</td>
          <td className="numeric">{grouped(row.totals.leased)}</td>
          <td className="numeric">{grouped(row.totals.delayed)}</td>
          <td className="numeric">{grouped(row.totals.dead)}</td>
          <td className="numeric">{row.totals.oldest_ms == null ? '–' : age(row.totals.oldest_ms, now)}</td>
        </tr>
      ))}
    </ScrollTable>
  );
}
