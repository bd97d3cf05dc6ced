import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { lazy, type ReactNode, Suspense, useMemo } from 'react';
import { origin, type Topic } from '../api/client';
import { tier, topicListing, totals } from '../api/topics';
import { chunk } from '../app/chunk';
import { useNamespace } from '../app/shell';
import { bytes, grouped, rate } from '../format/number';
import { EmptyList, ListFrame } from '../list/frame';
import { useSeen } from '../list/pages';
import { SearchBox, useShortcuts } from '../list/search';
import { type Numbers, nextSort, type Sort, sortable } from '../list/sort';
import { useSortedList } from '../list/sorted';
import { type Column, Grid, rowLink } from '../ui/grid';
import { useNarrow } from '../ui/narrow';
import { QuickStart } from './quickstart';

/** Dialogs bring their own library: it is loaded when the first one opens. */
const CreateTopic = lazy(chunk(async () => ({ default: (await import('./create')).CreateTopic })));

type NumberKey = 'messages' | 'size' | 'publish' | 'deliver';
type SortKey = NumberKey | 'name';

const NUMBERS: Numbers<Topic, NumberKey> = {
  messages: (topic) => totals(topic).records ?? -1,
  size: (topic) => totals(topic).bytes ?? -1,
  publish: (topic) => topic.rates.publish_records_per_second,
  deliver: (topic) => topic.rates.deliver_records_per_second,
};

export function TopicsPage() {
  const ns = useNamespace();
  const search = useSearch({ from: '/ns/$ns/topics' });
  const navigate = useNavigate({ from: '/ns/$ns/topics' });
  const q = search.q ?? '';
  const { list, rows, sort, onRange, loadAll, complete } = useSortedList(
    topicListing(ns, q),
    search.sort,
    NUMBERS,
  );

  const setCreate = (create: boolean) =>
    navigate({ search: (before) => ({ ...before, create: create || undefined }) });
  useShortcuts(() => setCreate(true));

  const empty = list.isSuccess && !list.isPlaceholderData && rows.length === 0;
  const creating = useSeen(search.create === true);
  const dialog = creating && (
    <Suspense>
      <CreateTopic ns={ns} open={search.create === true} onClose={() => setCreate(false)} />
    </Suspense>
  );
  if (empty && q === '') {
    return (
      <div className="page narrow">
        <h1>Welcome to Weir</h1>
        <p className="lead">
          There are no topics in this namespace yet. One minute takes you from here to messages.
        </p>
        <QuickStart ns={ns} />
        {dialog}
      </div>
    );
  }
  return (
    <ListFrame
      title="Topics"
      noun="topic"
      url={`${origin()}/v1/ns/${ns}/topics${q ? `?q=${encodeURIComponent(q)}` : ''}`}
      list={list}
      count={rows.length}
      complete={complete}
      onCreate={() => setCreate(true)}
      search={
        <SearchBox
          label="Search topics by name"
          q={q}
          onChange={(next) => navigate({ search: (s) => ({ ...s, q: next || undefined }), replace: true })}
        />
      }
      dialog={dialog}
    >
      <TopicsGrid
        ns={ns}
        rows={rows}
        sort={sort}
        empty={<EmptyList list={list} what="topics" none={`No topic’s name contains “${q}”.`} />}
        onRange={onRange}
        onEnd={loadAll}
        onSort={(key) => navigate({ search: (s) => ({ ...s, sort: nextSort(sort, key) }), replace: true })}
      />
    </ListFrame>
  );
}

interface TopicsGridProps {
  readonly ns: string;
  readonly rows: readonly Topic[];
  readonly sort: Sort<NumberKey>;
  readonly empty: ReactNode;
  readonly onRange: (first: number, last: number) => void;
  readonly onEnd: () => Promise<void>;
  readonly onSort: (key: SortKey) => void;
}

function TopicsGrid({ ns, rows, sort, onSort, ...rest }: TopicsGridProps) {
  const navigate = useNavigate();
  const narrow = useNarrow(760);
  const columns = useMemo(() => topicColumns(ns, sort, onSort, narrow), [ns, sort, onSort, narrow]);
  return (
    <Grid
      label="Topics"
      columns={columns}
      count={rows.length}
      row={(index) => rows[index]}
      rowKey={({ name }) => name}
      onOpen={({ name }) => void navigate({ to: '/ns/$ns/topics/$topic', params: { ns, topic: name } })}
      {...rest}
    />
  );
}

function topicColumns(
  ns: string,
  sort: Sort<NumberKey>,
  onSort: (key: SortKey) => void,
  narrow: boolean,
): Column<Topic>[] {
  const all: (Column<Topic> & { readonly wide?: boolean })[] = [
    {
      id: 'name',
      width: 'minmax(9rem, 4fr)',
      ...sortable(sort, onSort, 'name', 'Name'),
      cell: ({ name }) => <TopicLink ns={ns} name={name} />,
    },
    {
      id: 'tier',
      wide: true,
      width: 'minmax(7rem, 11.5rem)',
      head: 'Tier',
      cell: ({ config }) => <Tier config={config} />,
    },
    {
      id: 'partitions',
      wide: true,
      numeric: true,
      width: '6rem',
      head: 'Partitions',
      cell: (t) => grouped(t.config.partitions),
    },
    {
      id: 'messages',
      numeric: true,
      width: 'minmax(6.5rem, 1fr)',
      ...sortable(sort, onSort, 'messages', 'Messages'),
      cell: (topic) => known(totals(topic).records, grouped),
    },
    {
      id: 'size',
      wide: true,
      numeric: true,
      width: 'minmax(6rem, 1fr)',
      ...sortable(sort, onSort, 'size', 'Size'),
      cell: (topic) => known(totals(topic).bytes, bytes),
    },
    {
      id: 'publish',
      numeric: true,
      width: 'minmax(5.5rem, 1fr)',
      ...sortable(sort, onSort, 'publish', 'Publish/s'),
      cell: ({ rates }) => <Rate value={rates.publish_records_per_second} />,
    },
    {
      id: 'deliver',
      wide: true,
      numeric: true,
      width: 'minmax(5.5rem, 1fr)',
      ...sortable(sort, onSort, 'deliver', 'Deliver/s'),
      cell: ({ rates }) => <Rate value={rates.deliver_records_per_second} />,
    },
  ];
  return narrow ? all.filter((column) => !column.wide) : all;
}

function TopicLink({ ns, name }: { ns: string; name: string }) {
  return (
    <Link to="/ns/$ns/topics/$topic" params={{ ns, topic: name }} {...rowLink}>
      {name}
    </Link>
  );
}

const known = (value: number | null, text: (value: number) => string) =>
  value === null ? <span title="A shard of this topic cannot be reached now">unknown</span> : text(value);

const Rate = ({ value }: { value: number }) => (
  <span className={value > 0 ? 'hot' : 'faint'}>{rate(value)}</span>
);

export function Tier({ config }: { config: Topic['config'] }) {
  const name = tier(config);
  return (
    <span
      className="tier"
      data-tier={name}
      title={`Confirmed at ${config.default_confirm}, readers accept ${config.deliver_from}`}
    >
      {name}
      {config.closed && ' · closed'}
    </span>
  );
}
