import { useMutation, useQueryClient } from '@tanstack/react-query';
import { Link, Outlet, useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { Refused, type Subscription, subscriptionUrl } from '../api/client';
import { setPaused, subscriptionKey, useSubscription } from '../api/subscriptions';
import { curl } from '../curl/curl';
import { DeleteSubscription } from '../subscriptions/remove';
import { State } from '../subscriptions/state';
import { CopyButton } from '../ui/copy';
import { Sheet } from '../ui/dialog';
import { Loading, ProblemBox } from '../ui/problem';
import { SeekForm } from './seek';

const TABS = [
  { to: '/ns/$ns/subscriptions/$subscription', label: 'Overview', exact: true },
  { to: '/ns/$ns/subscriptions/$subscription/leases', label: 'Leases', exact: false },
  { to: '/ns/$ns/subscriptions/$subscription/dead', label: 'Dead letters', exact: false },
  { to: '/ns/$ns/subscriptions/$subscription/try', label: 'Try it', exact: false },
  { to: '/ns/$ns/subscriptions/$subscription/config', label: 'Config', exact: false },
] as const;

export function SubscriptionPage() {
  const { ns, subscription: name } = useParams({ from: '/ns/$ns/subscriptions/$subscription' });
  const query = useSubscription(ns, name);
  const gone = query.error instanceof Refused && query.error.problem.status === 404;
  const found = gone ? undefined : query.data?.subscription;
  return (
    <div className="page fill">
      <div className="page-head">
        <h1 className="crumbs">
          <Link to="/ns/$ns/subscriptions" params={{ ns }}>
            Subscriptions
          </Link>
          <span aria-hidden="true">/</span>
          <span className="mono crumb-name">{name}</span>
        </h1>
        {found && (
          <span className="count">
            <State subscription={found} /> · of <TopicLinks ns={ns} topics={found.config.topics} />
          </span>
        )}
        <span className="spacer" />
        {found && <Actions subscription={found} />}
      </div>
      {gone ? (
        <ProblemBox error={query.error} title={`There is no subscription ${name}`} />
      ) : (
        <>
          <nav className="tabs" aria-label="Subscription">
            {TABS.map(({ to, label, exact }) => (
              <Link
                key={to}
                to={to}
                params={{ ns, subscription: name }}
                activeOptions={{ exact, includeSearch: false }}
                className="tab"
              >
                {label}
              </Link>
            ))}
          </nav>
          {query.error && <ProblemBox error={query.error} onRetry={() => void query.refetch()} />}
          {found ? <Outlet /> : !query.error && <Loading what={name} />}
        </>
      )}
      {found && <Dialogs subscription={found} />}
    </div>
  );
}

export function TopicLinks({ ns, topics }: { ns: string; topics: readonly string[] }) {
  return topics.map((topic, index) => (
    <span key={topic}>
      {index > 0 && ', '}
      <Link to="/ns/$ns/topics/$topic" params={{ ns, topic }} className="mono">
        {topic}
      </Link>
    </span>
  ));
}

function Actions({ subscription }: { subscription: Subscription }) {
  const navigate = useNavigate();
  const client = useQueryClient();
  const { ns, name, config } = subscription;
  const open = (dialog: 'seek' | 'delete') =>
    void navigate({ to: '.', search: (before) => ({ ...before, [dialog]: true }) });
  const pause = useMutation({
    mutationFn: () => setPaused(ns, name, !config.paused),
    onSuccess: (now) => client.setQueryData(subscriptionKey(ns, name), now),
  });
  return (
    <>
      <CopyButton text={curl({ url: subscriptionUrl(ns, name) })} label="curl" />
      <CopyButton text={() => location.href} label="Link" />
      <button type="button" onClick={() => open('delete')}>
        Delete
      </button>
      <button type="button" onClick={() => open('seek')}>
        Seek
      </button>
      <button
        type="button"
        className={config.paused ? 'primary' : ''}
        // Not disabled while it is under way: it would lose the focus.
        aria-disabled={pause.isPending}
        onClick={() => pause.isPending || pause.mutate()}
      >
        {config.paused ? 'Resume' : 'Pause'}
      </button>
      {pause.error && (
        <Sheet title="Not done" open onClose={() => pause.reset()}>
          <ProblemBox error={pause.error} />
        </Sheet>
      )}
    </>
  );
}

function Dialogs({ subscription }: { subscription: Subscription }) {
  const search = useSearch({ strict: false });
  const navigate = useNavigate();
  const close = () =>
    void navigate({ to: '.', search: (before) => ({ ...before, seek: undefined, delete: undefined }) });
  return (
    <>
      <Sheet title={`Seek ${subscription.name}`} open={search.seek === true} onClose={close}>
        <SeekForm subscription={subscription} onClose={close} />
      </Sheet>
      <DeleteSubscription subscription={subscription} open={search.delete === true} onClose={close} />
    </>
  );
}
