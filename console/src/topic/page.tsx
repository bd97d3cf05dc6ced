import { Link, Outlet, useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { topicUrl } from '../api/client';
import { useTopic } from '../api/topics';
import { curl } from '../curl/curl';
import { counted } from '../format/number';
import { Tier } from '../topics/list';
import { DeleteTopic } from '../topics/remove';
import { CopyButton } from '../ui/copy';
import { Sheet } from '../ui/dialog';
import { EntityPage, Tabs } from '../ui/entity';
import { PublishForm } from './publish';
import { TrimForm } from './trim';

const TABS = [
  { to: '/ns/$ns/topics/$topic', label: 'Overview', exact: true },
  { to: '/ns/$ns/topics/$topic/messages', label: 'Messages', exact: false },
  { to: '/ns/$ns/topics/$topic/subscriptions', label: 'Subscriptions', exact: false },
  { to: '/ns/$ns/topics/$topic/config', label: 'Config', exact: false },
] as const;

export function TopicPage() {
  const { ns, topic } = useParams({ from: '/ns/$ns/topics/$topic' });
  const query = useTopic(ns, topic);
  const config = query.data?.topic.config;
  return (
    <EntityPage
      noun="topic"
      name={topic}
      query={query}
      found={config !== undefined}
      up={
        <Link to="/ns/$ns/topics" params={{ ns }}>
          Topics
        </Link>
      }
      about={
        config && (
          <>
            <Tier config={config} /> · {counted(config.partitions, 'partition')}
          </>
        )
      }
      actions={<TopicActions ns={ns} topic={topic} />}
      tabs={<Tabs label="Topic" tabs={TABS} params={{ ns, topic }} />}
      dialogs={<TopicDialogs ns={ns} topic={topic} />}
    >
      <Outlet />
    </EntityPage>
  );
}

function TopicActions({ ns, topic }: { ns: string; topic: string }) {
  const navigate = useNavigate();
  const open = (name: 'publish' | 'trim' | 'delete') =>
    void navigate({ to: '.', search: (before) => ({ ...before, [name]: true }) });
  return (
    <>
      <CopyButton text={curl({ url: topicUrl(ns, topic) })} label="curl" />
      <CopyButton text={() => location.href} label="Link" />
      <button type="button" onClick={() => open('delete')}>
        Delete
      </button>
      <button type="button" onClick={() => open('trim')}>
        Trim
      </button>
      <button type="button" className="primary" onClick={() => open('publish')}>
        Publish test
      </button>
    </>
  );
}

function TopicDialogs({ ns, topic }: { ns: string; topic: string }) {
  const search = useSearch({ strict: false });
  const navigate = useNavigate();
  const data = useTopic(ns, topic).data;
  const close = () =>
    void navigate({
      to: '.',
      search: (before) => ({ ...before, publish: undefined, trim: undefined, delete: undefined }),
    });
  if (!data) return null;
  return (
    <>
      <Sheet title="Publish a test message" place="side" open={search.publish === true} onClose={close}>
        <PublishForm ns={ns} topic={topic} config={data.topic.config} />
      </Sheet>
      <Sheet title={`Trim ${topic}`} open={search.trim === true} onClose={close}>
        <TrimForm described={data} onClose={close} />
      </Sheet>
      <DeleteTopic described={data} open={search.delete === true} onClose={close} />
    </>
  );
}
