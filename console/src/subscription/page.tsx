import { useMutation, useQueryClient } from '@tanstack/react-query';
import { Link, Outlet, useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { answered } from '../api/answered';
import { type Subscription, subscriptionUrl } from '../api/client';
import {
  type DescribedSubscription,
  setPaused,
  subscriptionKey,
  useSubscription,
} from '../api/subscriptions';
import { curl } from '../curl/curl';
import { isStream } from '../subscriptions/config';
import { DeleteSubscription } from '../subscriptions/remove';
import { State } from '../subscriptions/state';
import { CopyButton } from '../ui/copy';
import { Sheet } from '../ui/dialog';
import { EntityPage, Tabs } from '../ui/entity';
import { ProblemBox } from '../ui/problem';
import { ExplainForm } from './explain';
import { ForkForm } from './fork';
import { PurgeForm } from './purge';
import { SeekForm } from './seek';

const TABS = [
  { to: '/ns/$ns/subscriptions/$subscription', label: 'Overview', exact: true },
  { to: '/ns/$ns/subscriptions/$subscription/leases', label: 'Leases', exact: false },
  { to: '/ns/$ns/subscriptions/$subscription/dead', label: 'Dead letters', exact: false },
  { to: '/ns/$ns/subscriptions/$subscription/try', label: 'Try it', exact: false },
  { to: '/ns/$ns/subscriptions/$subscription/config', label: 'Config', exact: false },
] as const;

const STREAM_TABS = TABS.filter(({ label }) => label !== 'Dead letters');

export function SubscriptionPage() {
  const { ns, subscription: name } = useParams({ from: '/ns/$ns/subscriptions/$subscription' });
  const query = useSubscription(ns, name);
  const found = query.data?.subscription;
  return (
    <EntityPage
      noun="subscription"
      name={name}
      query={query}
      found={found !== undefined}
      up={
        <Link to="/ns/$ns/subscriptions" params={{ ns }}>
          Subscriptions
        </Link>
      }
      about={
        found && (
          <>
            <State subscription={found} /> · {isStream(found.config) ? 'stream of' : 'of'}{' '}
            <TopicLinks ns={ns} topics={found.config.topics} />
          </>
        )
      }
      actions={found && <Actions subscription={found} />}
      tabs={
        <Tabs
          label="Subscription"
          tabs={found && isStream(found.config) ? STREAM_TABS : TABS}
          params={{ ns, subscription: name }}
        />
      }
      dialogs={query.data && <Dialogs described={query.data} />}
    >
      <Outlet />
    </EntityPage>
  );
}

export function TopicLinks({ ns, topics }: { ns: string; topics: readonly string[] }) {
  return topics.map((topic, index) => (
    <span key={topic}>
      {index > 0 && ', '}
      {topic.endsWith('*') ? (
        <span className="mono">{topic}</span>
      ) : (
        <Link to="/ns/$ns/topics/$topic" params={{ ns, topic }} className="mono">
          {topic}
        </Link>
      )}
    </span>
  ));
}

function Actions({ subscription }: { subscription: Subscription }) {
  const navigate = useNavigate();
  const client = useQueryClient();
  const { ns, name, config } = subscription;
  const open = (dialog: { seek?: true; purge?: true; fork?: true; delete?: true; explain?: string }) =>
    void navigate({ to: '.', search: (before) => ({ ...before, ...dialog }) });
  const pause = useMutation({
    mutationFn: () => setPaused(ns, name, !config.paused),
    onSuccess: (now) => answered(client, subscriptionKey(ns, name), now),
  });
  return (
    <>
      <CopyButton text={curl({ url: subscriptionUrl(ns, name) })} label="curl" />
      <CopyButton text={() => location.href} label="Link" />
      <button type="button" onClick={() => open({ delete: true })}>
        Delete
      </button>
      <button type="button" onClick={() => open({ explain: '' })}>
        Explain
      </button>
      <button type="button" onClick={() => open({ fork: true })}>
        Fork
      </button>
      <button type="button" onClick={() => open({ purge: true })}>
        Purge
      </button>
      <button type="button" onClick={() => open({ seek: true })}>
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

function Dialogs({ described }: { described: DescribedSubscription }) {
  const { subscription } = described;
  // What was counted of one life is not done to another of the same name.
  const { id } = subscription;
  const search = useSearch({ strict: false });
  const navigate = useNavigate();
  const close = () =>
    void navigate({
      to: '.',
      search: (before) => ({
        ...before,
        seek: undefined,
        purge: undefined,
        fork: undefined,
        delete: undefined,
        explain: undefined,
      }),
    });
  return (
    <>
      <Sheet
        title={`Explain a message of ${subscription.name}`}
        open={search.explain !== undefined}
        onClose={close}
      >
        <ExplainForm
          key={search.explain}
          subscription={subscription}
          first={search.explain ?? ''}
          onClose={close}
        />
      </Sheet>
      <Sheet title={`Seek ${subscription.name}`} open={search.seek === true} onClose={close}>
        <SeekForm key={id} subscription={subscription} onClose={close} />
      </Sheet>
      <Sheet title={`Purge ${subscription.name}`} open={search.purge === true} onClose={close}>
        <PurgeForm key={id} subscription={subscription} onClose={close} />
      </Sheet>
      <Sheet title={`Fork ${subscription.name}`} open={search.fork === true} onClose={close}>
        <ForkForm subscription={subscription} onClose={close} />
      </Sheet>
      <DeleteSubscription described={described} open={search.delete === true} onClose={close} />
    </>
  );
}
