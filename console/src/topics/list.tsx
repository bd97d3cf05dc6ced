import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { lazy, Suspense, useCallback, useEffect, useMemo, useRef, useState } from 'react';
import { origin, type Topic } from '../api/client';
import { PAGE_ROWS, tier, totals, useLivePages, useRows, useTopicPages } from '../api/topics';
import { useNamespace } from '../app/shell';
import { curl } from '../curl/curl';
import { bytes, counted, grouped, rate } from '../format/number';
import { CopyButton } from '../ui/copy';
import { type Column, Grid } from '../ui/grid';
import { SearchIcon } from '../ui/icons';
import { useNarrow } from '../ui/narrow';
import { Loading, ProblemBox } from '../ui/problem';
import { QuickStart } from './quickstart';

/** Dialogs bring their own library: it is loaded when the first one opens. */
const CreateTopic = lazy(async () => ({ default: (await import('./create')).CreateTopic }));

type SortKey = 'name' | 'messages' | 'size' | 'publish' | 'deliver';

const SORTS: Record<Exclude<SortKey, 'name'>, (topic: Topic) => number> = {
  messages: (topic) => totals(topic).records ?? -1,
  size: (topic) => totals(topic).bytes ?? -1,
  publish: (topic) => topic.rates.publish_records_per_second,
  deliver: (topic) => topic.rates.deliver_records_per_second,
};

const NO_PAGES: never[] = [];

export function TopicsPage() {
  const ns = useNamespace();
  const search = useSearch({ from: '/ns/$ns/topics' });
  const navigate = useNavigate({ from: '/ns/$ns/topics' });
  const q = search.q ?? '';
  const sort = sortOf(search.sort);
  const list = useTopicPages(ns, q);
  const pages = list.data?.pages ?? NO_PAGES;
  const [visible, setVisible] = useState<readonly number[]>([0]);
  const known = visible.filter((index) => index < pages.length);
  const live = useLivePages(ns, q, pages, known);
  const rows = useSorted(useRows(pages, live.byName), sort, list.isFetchingNextPage);

  const loadAll = useLoadAll(list);
  // Any order but the server's needs every row; so does an end that was asked for.
  const complete = !list.hasNextPage;
  useEffect(() => {
    if (!(sort.key === 'name' && !sort.descending) && !complete) void loadAll();
  }, [sort.key, sort.descending, complete, loadAll]);
  const onRange = useCallback(
    (first: number, last: number) => {
      const next = [...new Set([Math.floor(first / PAGE_ROWS), Math.floor(last / PAGE_ROWS)])];
      setVisible((before) => (before.join() === next.join() ? before : next));
      if (last >= rows.length - 60 && list.hasNextPage && !list.isFetchingNextPage) void list.fetchNextPage();
    },
    [rows.length, list.hasNextPage, list.isFetchingNextPage, list.fetchNextPage],
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
  const listUrl = `${origin()}/v1/ns/${ns}/topics${q ? `?q=${encodeURIComponent(q)}` : ''}`;
  return (
    <div className="page fill">
      <div className="page-head">
        <h1>Topics</h1>
        <span className="count" role="status">
          {list.isSuccess && `${counted(rows.length, 'topic')}${complete ? '' : ' read so far'}`}
        </span>
        <span className="spacer" />
        <CopyButton text={curl({ url: listUrl })} label="curl" />
        <button type="button" className="primary" onClick={() => setCreate(true)} aria-keyshortcuts="n">
          Create topic <kbd>n</kbd>
        </button>
      </div>
      <SearchBox
        q={q}
        onChange={(next) => navigate({ search: (s) => ({ ...s, q: next || undefined }), replace: true })}
      />
      {list.error && rows.length > 0 && <ProblemBox error={list.error} onRetry={() => void list.refetch()} />}
      <TopicsGrid
        ns={ns}
        rows={rows}
        sort={sort}
        state={list.isPending ? 'loading' : list.error && rows.length === 0 ? list.error : null}
        q={q}
        onRetry={() => void list.refetch()}
        onRange={onRange}
        onEnd={loadAll}
        onSort={(key) => navigate({ search: (s) => ({ ...s, sort: nextSort(sort, key) }), replace: true })}
      />
      {dialog}
    </div>
  );
}

/** True from the first time it was: a dialog that closes must stay mounted to give the focus back. */
function useSeen(now: boolean): boolean {
  const seen = useRef(false);
  seen.current ||= now;
  return seen.current;
}

interface Sort {
  readonly key: SortKey;
  readonly descending: boolean;
}

function sortOf(text: string | undefined): Sort {
  const key = text?.replace(/^-/, '') ?? 'name';
  return {
    key: key === 'name' || key in SORTS ? (key as SortKey) : 'name',
    descending: text?.startsWith('-') ?? false,
  };
}

/** A click turns the order round; a number starts with its largest. */
function nextSort(now: Sort, key: SortKey): string | undefined {
  const descending = now.key === key ? !now.descending : key !== 'name';
  return key === 'name' && !descending ? undefined : `${descending ? '-' : ''}${key}`;
}

function useSorted(rows: Topic[], { key, descending }: Sort, loading: boolean): Topic[] {
  // Rates move all the time: rows keep their place until the order is asked for again or rows are added.
  const order = useRef<{ id: string; names: string[] }>({ id: '', names: [] });
  return useMemo(() => {
    if (key === 'name') return descending ? [...rows].reverse() : rows;
    const value = SORTS[key];
    const id = `${key}${descending}${rows.length}${loading}`;
    if (order.current.id !== id) {
      const sorted = [...rows].sort(
        (a, b) => (value(a) - value(b)) * (descending ? -1 : 1) || (a.name < b.name ? -1 : 1),
      );
      order.current = { id, names: sorted.map(({ name }) => name) };
      return sorted;
    }
    const byName = new Map(rows.map((topic) => [topic.name, topic]));
    return order.current.names.flatMap((name) => byName.get(name) ?? []);
  }, [rows, key, descending, loading]);
}

/** Reads page after page until the end. */
function useLoadAll(list: ReturnType<typeof useTopicPages>) {
  const { fetchNextPage } = list;
  const running = useRef<Promise<void> | null>(null);
  return useCallback(() => {
    running.current ??= (async () => {
      for (;;) {
        const { hasNextPage, error } = await fetchNextPage({ cancelRefetch: false });
        if (!hasNextPage || error) return;
      }
    })().finally(() => {
      running.current = null;
    });
    return running.current;
  }, [fetchNextPage]);
}

/** `n` creates, `/` searches: only while no field or dialog has the focus. */
function useShortcuts(onCreate: () => void) {
  const latest = useRef(onCreate);
  latest.current = onCreate;
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || target.closest('input, textarea, [role=dialog]'))
        return;
      if (event.key === 'n') latest.current();
      else if (event.key === '/') document.getElementById('topic-search')?.focus();
      else return;
      event.preventDefault();
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, []);
}

function SearchBox({ q, onChange }: { q: string; onChange: (q: string) => void }) {
  const [text, setText] = useState(q);
  const sent = useRef(q);
  useEffect(() => {
    // Back and forward change the address without typing.
    if (q !== sent.current) setText(q);
    sent.current = q;
  }, [q]);
  useEffect(() => {
    if (text === sent.current) return;
    const timer = setTimeout(() => {
      sent.current = text;
      onChange(text);
    }, 180);
    return () => clearTimeout(timer);
  }, [text, onChange]);
  return (
    <div className="search">
      <SearchIcon />
      <input
        id="topic-search"
        type="search"
        aria-label="Search topics by name"
        placeholder="Search by name"
        autoComplete="off"
        spellCheck={false}
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      <kbd>/</kbd>
    </div>
  );
}

interface TopicsGridProps {
  readonly ns: string;
  readonly rows: readonly Topic[];
  readonly sort: Sort;
  readonly state: unknown;
  readonly q: string;
  readonly onRetry: () => void;
  readonly onRange: (first: number, last: number) => void;
  readonly onEnd: () => Promise<void>;
  readonly onSort: (key: SortKey) => void;
}

function TopicsGrid(props: TopicsGridProps) {
  const { ns, rows, sort, onSort } = props;
  const navigate = useNavigate();
  const narrow = useNarrow(760);
  const columns = useMemo(() => topicColumns(ns, sort, onSort, narrow), [ns, sort, onSort, narrow]);
  const empty =
    props.state === 'loading' ? (
      <Loading what="topics" />
    ) : props.state ? (
      <ProblemBox error={props.state} onRetry={props.onRetry} />
    ) : (
      <p>No topic’s name contains “{props.q}”.</p>
    );
  return (
    <Grid
      label="Topics"
      columns={columns}
      count={rows.length}
      row={(index) => rows[index]}
      rowKey={({ name }) => name}
      onOpen={({ name }) => void navigate({ to: '/ns/$ns/topics/$topic', params: { ns, topic: name } })}
      onRange={props.onRange}
      onEnd={props.onEnd}
      empty={empty}
    />
  );
}

function topicColumns(
  ns: string,
  sort: Sort,
  onSort: (key: SortKey) => void,
  narrow: boolean,
): Column<Topic>[] {
  const sortable = (key: SortKey, label: string) => ({
    head: (
      <button
        type="button"
        className="sort"
        data-on={sort.key === key || undefined}
        onClick={() => onSort(key)}
      >
        {label}
        <span aria-hidden="true">{sort.key === key ? (sort.descending ? ' ↓' : ' ↑') : ''}</span>
      </button>
    ),
    sorted:
      sort.key === key ? (sort.descending ? ('descending' as const) : ('ascending' as const)) : undefined,
  });
  const unknown = (value: number | null, text: (value: number) => string) =>
    value === null ? <span title="A shard of this topic cannot be reached now">unknown</span> : text(value);
  const all: (Column<Topic> & { readonly wide?: boolean })[] = [
    {
      id: 'name',
      width: 'minmax(9rem, 4fr)',
      ...sortable('name', 'Name'),
      cell: (topic) => (
        <Link
          to="/ns/$ns/topics/$topic"
          params={{ ns, topic: topic.name }}
          className="row-link mono"
          tabIndex={-1}
          onClick={(event) => event.stopPropagation()}
        >
          {topic.name}
        </Link>
      ),
    },
    {
      id: 'tier',
      wide: true,
      width: 'minmax(7rem, 1fr)',
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
      ...sortable('messages', 'Messages'),
      cell: (topic) => unknown(totals(topic).records, grouped),
    },
    {
      id: 'size',
      wide: true,
      numeric: true,
      width: 'minmax(6rem, 1fr)',
      ...sortable('size', 'Size'),
      cell: (topic) => unknown(totals(topic).bytes, bytes),
    },
    {
      id: 'publish',
      numeric: true,
      width: 'minmax(5.5rem, 1fr)',
      ...sortable('publish', 'Publish/s'),
      cell: ({ rates }) => <Rate value={rates.publish_records_per_second} />,
    },
    {
      id: 'deliver',
      wide: true,
      numeric: true,
      width: 'minmax(5.5rem, 1fr)',
      ...sortable('deliver', 'Deliver/s'),
      cell: ({ rates }) => <Rate value={rates.deliver_records_per_second} />,
    },
  ];
  return narrow ? all.filter((column) => !column.wide) : all;
}

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
