import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { lazy, type ReactNode, Suspense, useMemo } from 'react';
import { origin, type Subscription } from '../api/client';
import { subscriptionListing } from '../api/subscriptions';
import { chunk } from '../app/chunk';
import { useNamespace } from '../app/shell';
import { grouped } from '../format/number';
import { age } from '../format/time';
import { EmptyList, ListFrame } from '../list/frame';
import { useSeen } from '../list/pages';
import { SearchBox, useShortcuts } from '../list/search';
import { type Numbers, nextSort, type Sort, sortable } from '../list/sort';
import { useSortedList } from '../list/sorted';
import { type Column, Grid, rowLink } from '../ui/grid';
import { CloseIcon } from '../ui/icons';
import { useNarrow } from '../ui/narrow';
import { useNow } from '../ui/now';
import { QueueQuickStart } from './quickstart';
import { State } from './state';
import { unknownParts } from './verdict';

const CreateSubscription = lazy(
  chunk(async () => ({ default: (await import('./create')).CreateSubscription })),
);

type NumberKey = 'depth' | 'ready' | 'leased' | 'delayed' | 'dead' | 'oldest';
type SortKey = NumberKey | 'name';

const NUMBERS: Numbers<Subscription, NumberKey> = {
  depth: ({ totals }) => totals.unsettled,
  ready: ({ totals }) => totals.ready,
  leased: ({ totals }) => totals.leased,
  delayed: ({ totals }) => totals.delayed,
  dead: ({ totals }) => totals.dead,
  // The oldest first, those without a message last.
  oldest: ({ totals }) => -(totals.oldest_ms ?? Number.MAX_SAFE_INTEGER),
};

export function SubscriptionsPage() {
  const ns = useNamespace();
  const search = useSearch({ from: '/ns/$ns/subscriptions' });
  const navigate = useNavigate({ from: '/ns/$ns/subscriptions' });
  const q = search.q ?? '';
  const topic = search.topic ?? '';
  const { list, rows, sort, onRange, loadAll, complete } = useSortedList(
    subscriptionListing(ns, q, topic),
    search.sort,
    NUMBERS,
  );

  const set = (next: Partial<typeof search>, replace = false) =>
    navigate({ search: (before) => ({ ...before, ...next }), replace });
  const setCreate = (create: boolean) => set({ create: create || undefined });
  useShortcuts(() => setCreate(true));

  const empty = list.isSuccess && !list.isPlaceholderData && rows.length === 0;
  const creating = useSeen(search.create === true);
  const dialog = creating && (
    <Suspense>
      <CreateSubscription
        key={topic}
        ns={ns}
        topic={topic}
        open={search.create === true}
        onClose={() => setCreate(false)}
      />
    </Suspense>
  );
  if (empty && q === '' && topic === '') return <FirstQueue ns={ns}>{dialog}</FirstQueue>;
  const query = new URLSearchParams({ ...(q && { q }), ...(topic && { topic }) }).toString();
  return (
    <ListFrame
      title="Subscriptions"
      noun="subscription"
      url={`${origin()}/v1/ns/${ns}/subscriptions${query && `?${query}`}`}
      list={list}
      count={rows.length}
      complete={complete}
      onCreate={() => setCreate(true)}
      search={
        <Narrowing
          q={q}
          topic={topic}
          onSearch={(next) => set({ q: next || undefined }, true)}
          onAllTopics={() => set({ topic: undefined })}
        />
      }
      dialog={dialog}
    >
      <SubscriptionsGrid
        ns={ns}
        rows={rows}
        sort={sort}
        empty={<EmptyList list={list} what="subscriptions" none={noneOf(q, topic)} />}
        onRange={onRange}
        onEnd={loadAll}
        onSort={(key) => set({ sort: nextSort(sort, key) }, true)}
      />
    </ListFrame>
  );
}

/** The page where there are no subscriptions at all. */
function FirstQueue({ ns, children }: { ns: string; children: ReactNode }) {
  return (
    <div className="page narrow">
      <h1>Work queues</h1>
      <p className="lead">
        There are no subscriptions in this namespace yet. One minute takes you from here to a queue.
      </p>
      <QueueQuickStart ns={ns} topic="" />
      {children}
    </div>
  );
}

interface NarrowingProps {
  readonly q: string;
  readonly topic: string;
  readonly onSearch: (q: string) => void;
  readonly onAllTopics: () => void;
}

/** What the list is narrowed to: a part of the name, a topic. */
function Narrowing({ q, topic, onSearch, onAllTopics }: NarrowingProps) {
  return (
    <div className="toolbar">
      <SearchBox label="Search subscriptions by name" q={q} onChange={onSearch} />
      {topic !== '' && (
        <button type="button" className="chip" onClick={onAllTopics}>
          of topic <code>{topic}</code>
          <span className="visually-hidden">: show those of all topics</span>
          <CloseIcon />
        </button>
      )}
    </div>
  );
}

const noneOf = (q: string, topic: string) =>
  q === ''
    ? `The topic ${topic} has no subscriptions.`
    : `No subscription’s name contains “${q}”${topic && ` among those of ${topic}`}.`;

interface GridProps {
  readonly ns: string;
  readonly rows: readonly Subscription[];
  readonly sort: Sort<NumberKey>;
  readonly empty: ReactNode;
  readonly onRange: (first: number, last: number) => void;
  readonly onEnd: () => Promise<void>;
  readonly onSort: (key: SortKey) => void;
}

function SubscriptionsGrid({ ns, rows, sort, onSort, ...rest }: GridProps) {
  const navigate = useNavigate();
  const narrow = useNarrow(760);
  const now = useNow(1000);
  const columns = useMemo(() => columnsOf(ns, sort, onSort, narrow, now), [ns, sort, onSort, narrow, now]);
  return (
    <Grid
      label="Subscriptions"
      columns={columns}
      count={rows.length}
      row={(index) => rows[index]}
      rowKey={({ name }) => name}
      onOpen={({ name }) =>
        void navigate({
          to: '/ns/$ns/subscriptions/$subscription',
          params: { ns, subscription: name },
        })
      }
      {...rest}
    />
  );
}

function columnsOf(
  ns: string,
  sort: Sort<NumberKey>,
  onSort: (key: SortKey) => void,
  narrow: boolean,
  now: number,
): Column<Subscription>[] {
  const number = (key: Exclude<NumberKey, 'oldest'>, label: string, tone?: string) => ({
    id: key,
    numeric: true,
    width: 'minmax(4.6rem, 1fr)',
    ...sortable(sort, onSort, key, label),
    cell: (row: Subscription) => <Count row={row} value={NUMBERS[key](row)} tone={tone} />,
  });
  const columns: (Column<Subscription> | false)[] = [
    {
      id: 'name',
      width: 'minmax(7rem, 3fr)',
      ...sortable(sort, onSort, 'name', 'Name'),
      cell: ({ name }) => (
        <Link to="/ns/$ns/subscriptions/$subscription" params={{ ns, subscription: name }} {...rowLink}>
          {name}
        </Link>
      ),
    },
    !narrow && {
      id: 'topic',
      width: 'minmax(7rem, 3fr)',
      head: 'Topic',
      cell: ({ config }) => <span className="mono faint">{config.topics.join(', ')}</span>,
    },
    {
      id: 'state',
      width: 'minmax(5.8rem, 1fr)',
      head: 'State',
      cell: (row) => <State subscription={row} />,
    },
    number('depth', 'Depth'),
    !narrow && number('ready', 'Ready'),
    !narrow && number('leased', 'Leased'),
    !narrow && number('delayed', 'Delayed'),
    number('dead', 'Dead', 'bad'),
    !narrow && {
      id: 'oldest',
      numeric: true,
      width: 'minmax(5.4rem, 1fr)',
      ...sortable(sort, onSort, 'oldest', 'Oldest'),
      cell: ({ totals }) =>
        totals.oldest_ms == null ? (
          <span className="faint">–</span>
        ) : (
          <span title="Age of the oldest message that is not settled">{age(totals.oldest_ms, now)}</span>
        ),
    },
  ];
  return columns.filter((column) => column !== false);
}

function Count({ row, value, tone }: { row: Subscription; value: number; tone: string | undefined }) {
  const unknown = unknownParts(row);
  if (unknown > 0 && unknown === row.parts.length) return <span className="faint">unknown</span>;
  return (
    <span className={value > 0 ? (tone ?? 'some') : 'faint'}>
      {unknown > 0 && '≥ '}
      {grouped(value)}
    </span>
  );
}
