import { useQuery } from '@tanstack/react-query';
import { useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { useMemo, useRef, useState } from 'react';
import { socketUrl, type Topic } from '../api/client';
import { asOne, peek, type ReadAt, readUrl } from '../api/messages';
import { useTopic } from '../api/topics';
import { useSettings } from '../app/settings';
import { curl } from '../curl/curl';
import { bytes, counted, grouped } from '../format/number';
import { brief, instant } from '../format/time';
import { sift } from '../tail/filter';
import { idOf, type Message } from '../tail/message';
import type { Row } from '../tail/session';
import { type LiveStart, liveStart, targetOf } from '../tail/start';
import { type Tail, useTail } from '../tail/useTail';
import { CopyButton } from '../ui/copy';
import { type Column, Grid } from '../ui/grid';
import { useNarrow } from '../ui/narrow';
import { Loading, ProblemBox } from '../ui/problem';
import { LiveBar } from './live';
import { olderFrom } from './paging';
import { MessagePanel } from './panel';
import { SeekBar } from './seek';

export const NEWEST = 'tail:50';
const PAGE = 50;
const NO_MESSAGES: readonly Message[] = [];

export function MessagesTab() {
  const { ns, topic: name } = useParams({ from: '/ns/$ns/topics/$topic' });
  const described = useTopic(ns, name).data;
  return described ? <Messages key={described.topic.incarnation} ns={ns} topic={described.topic} /> : null;
}

/** Of the address: what is looked at. */
interface Search {
  readonly from?: string | undefined;
  readonly partition?: number | undefined;
  readonly live?: boolean | undefined;
  readonly open?: string | undefined;
}

type SetSearch = (next: Partial<Search>, replace?: boolean) => void;

function Messages({ ns, topic }: { ns: string; topic: Topic }) {
  const search = useSearch({ from: '/ns/$ns/topics/$topic/messages' });
  const navigate = useNavigate({ from: '/ns/$ns/topics/$topic/messages' });
  const set: SetSearch = (next, replace = false) =>
    void navigate({ search: (before) => ({ ...before, ...next }), replace });
  const [filter, setFilter] = useState('');
  const shown = useMessages(ns, topic, search, filter);
  const { start, page, live, tail, listed } = shown;
  const gridRef = useRef<HTMLDivElement>(null);
  const open = (id: string | undefined) => {
    if (id !== undefined && live) tail.pause(true);
    set({ open: id }, search.open !== undefined && id !== undefined);
  };
  const opened = placeOf(search.open);
  return (
    <div className="messages" data-panel={opened !== null || undefined}>
      <Toolbar topic={topic} search={search} shown={shown} onSearch={set} />
      {live && (
        <LiveBar
          tail={tail}
          start={start}
          filter={filter}
          hidden={listed.hidden}
          onStart={(next) => set({ from: next === 'now' ? undefined : next, open: undefined })}
          onFilter={setFilter}
          onResume={() => {
            tail.pause(false);
            gridRef.current?.scrollTo({ top: 0 });
          }}
          onSkip={() => {
            // The button goes with the pause.
            gridRef.current?.focus();
            tail.skip();
          }}
        />
      )}
      {page.error && (
        <ProblemBox
          error={page.error}
          title="The messages were not read"
          onRetry={() => void page.refetch()}
        />
      )}
      <div className="split">
        <MessageGrid
          tail={tail}
          listed={listed}
          topic={topic}
          openKey={search.open}
          onOpen={open}
          gridRef={gridRef}
          empty={page.error ? null : <Nothing shown={shown} />}
        />
        {opened && (
          <MessagePanel
            key={search.open}
            topic={topic}
            {...opened}
            known={find(tail, shown.peeked, search.open)}
            onClose={() => {
              open(undefined);
              gridRef.current?.focus();
            }}
          />
        )}
      </div>
      {!live && <Pager topic={topic} shown={shown} onFrom={(from) => set({ from, open: undefined })} />}
    </div>
  );
}

type Shown = ReturnType<typeof useMessages>;

/** What the address asks for: a page, or what follows it. */
function useMessages(ns: string, topic: Topic, search: Search, filter: string) {
  const start = liveStart(search.from);
  const { partition } = search;
  const at = { from: search.live ? NEWEST : (search.from ?? NEWEST), partition, limit: PAGE };
  const page = useQuery({
    queryKey: ['messages', ns, topic.name, topic.incarnation, at.from, partition],
    queryFn: ({ signal }) => peek(topic, at, signal),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 30_000,
  });
  const live = search.live === true && page.isSuccess;
  const peeked = (live && start !== 'now' ? undefined : page.data?.messages) ?? NO_MESSAGES;
  const followed = { ns, topic: topic.name, partitions: topic.config.partitions, partition };
  const tail = useTail(live ? targetOf(followed, start, page.data) : null, socketUrl());
  const listed = useListed(tail, peeked, live ? filter.trim() : '');
  return { at, start, page, live, peeked, tail, listed };
}

interface ToolbarProps {
  readonly topic: Topic;
  readonly search: Search;
  readonly shown: Shown;
  readonly onSearch: SetSearch;
}

function Toolbar({ topic, search, shown, onSearch }: ToolbarProps) {
  const { at, start, page } = shown;
  const wantsLive = search.live === true;
  return (
    <div className="toolbar">
      <SeekBar
        topic={topic}
        from={at.from}
        partition={at.partition}
        disabled={wantsLive}
        onSeek={({ from, partition }) =>
          onSearch({
            // While it is followed only the partition can be chosen.
            from: wantsLive ? search.from : from === NEWEST ? undefined : from,
            partition,
            open: undefined,
          })
        }
      />
      <span className="spacer" />
      <CopyButton text={() => tailCurl(topic, at, wantsLive ? start : null)} label="curl" />
      <button
        type="button"
        disabled={wantsLive}
        // Not disabled while it is under way: it would lose the focus.
        aria-disabled={page.isFetching}
        onClick={() => page.isFetching || void page.refetch()}
      >
        Refresh
      </button>
      <button
        type="button"
        className="toggle"
        aria-pressed={wantsLive}
        onClick={() => {
          if (wantsLive) void page.refetch();
          onSearch({ live: wantsLive ? undefined : true, from: undefined });
        }}
      >
        <span className="pulse" /> Live
      </button>
    </div>
  );
}

function placeOf(id: string | undefined): { partition: number; offset: number } | null {
  const match = /^(\d{1,4}):(\d{1,16})$/.exec(id ?? '');
  return match ? { partition: Number(match[1]), offset: Number(match[2]) } : null;
}

function find(tail: Tail, peeked: readonly Message[], id: string | undefined): Message | undefined {
  for (let i = 0; i < tail.rows.length; i += 1) {
    const row = tail.rows.newest(i);
    if (row?.kind === 'message' && idOf(row) === id) return row;
  }
  return peeked.find((message) => idOf(message) === id);
}

function tailCurl({ ns, name, partitions }: Topic, at: ReadAt, live: LiveStart | null): string {
  if (live === null) return curl({ url: readUrl(ns, name, asOne(at, partitions.length)) });
  const url = readUrl(ns, name, { ...at, from: live === 'now' ? 'latest' : live }).replace(/&limit=\d+/, '');
  return curl({ url, headers: { Accept: 'text/event-stream' }, streaming: true });
}

interface Listed {
  readonly count: number;
  readonly row: (index: number) => Row | undefined;
  /** Messages that the filter hides. */
  readonly hidden: number;
}

/** What the list shows, newest first: what was followed, above what was looked at before. */
function useListed(tail: Tail, peeked: readonly Message[], filter: string): Listed {
  const { rows, version } = tail;
  const live = tail.status === null ? 0 : rows.length;
  const below = peeked.length > rows.capacity - live ? peeked.slice(0, rows.capacity - live) : peeked;
  // biome-ignore lint/correctness/useExhaustiveDependencies: `version` stands for the content of `rows`
  const sifted = useMemo(
    () => (filter === '' ? null : sift([...(live > 0 ? rows : []), ...below], filter)),
    [version, live, below, filter],
  );
  if (sifted) return { count: sifted.rows.length, row: (index) => sifted.rows[index], hidden: sifted.hidden };
  return {
    count: live + below.length,
    row: (index) => (index < live ? rows.newest(index) : below[index - live]),
    hidden: 0,
  };
}

interface MessageGridProps {
  readonly tail: Tail;
  readonly listed: Listed;
  readonly topic: Topic;
  readonly openKey: string | undefined;
  readonly onOpen: (id: string) => void;
  readonly gridRef: React.RefObject<HTMLDivElement | null>;
  readonly empty: React.ReactNode;
}

function MessageGrid({ tail, listed, topic, openKey, onOpen, gridRef, empty }: MessageGridProps) {
  const narrow = useNarrow(760);
  const { zone } = useSettings();
  const several = topic.config.partitions > 1;
  const columns = useMemo(
    () => messageColumns(zone, several, narrow || openKey !== undefined, narrow),
    [zone, several, narrow, openKey],
  );
  const following = tail.status !== null;
  return (
    <Grid<Row>
      label="Messages, newest first"
      columns={columns}
      count={listed.count}
      row={listed.row}
      rowKey={keyOf}
      rowClass={(row) => (row.kind === 'message' ? undefined : 'gap')}
      onOpen={(row) => row.kind === 'message' && onOpen(idOf(row))}
      openKey={openKey}
      gridRef={gridRef}
      onScrolled={(top) => {
        if (following && !tail.paused && top > 48) tail.pause(true);
      }}
      empty={empty}
    />
  );
}

function messageColumns(
  zone: 'utc' | 'local',
  several: boolean,
  compact: boolean,
  narrow: boolean,
): Column<Row>[] {
  const of = (show: (message: Message) => React.ReactNode) => (row: Row) =>
    row.kind === 'message' ? show(row) : null;
  const columns: (Column<Row> | false)[] = [
    {
      id: 'time',
      head: 'Time',
      width: compact ? '7.4rem' : '14.2rem',
      cell: of(({ ts }) => (
        <time className="mono faint" title={instant(ts, zone)}>
          {compact ? brief(ts, Date.now(), zone) : instant(ts, zone)}
        </time>
      )),
    },
    several && {
      id: 'partition',
      head: <abbr title="Partition">P</abbr>,
      numeric: true,
      width: '3rem',
      cell: of(({ partition }) => partition),
    },
    {
      id: 'offset',
      head: 'Offset',
      numeric: true,
      width: narrow ? '4.2rem' : '6.5rem',
      cell: of(({ offset }) => <span className="mono">{grouped(offset)}</span>),
    },
    !compact && {
      id: 'key',
      head: 'Key',
      width: 'minmax(5rem, 1fr)',
      cell: of(({ key }) =>
        key === null ? <span className="faint">–</span> : <span className="mono">{key}</span>,
      ),
    },
    {
      id: 'body',
      head: 'Body',
      width: 'minmax(0, 5fr)',
      cell: (row) => (row.kind === 'message' ? <span className="mono">{row.preview}</span> : markText(row)),
    },
    !narrow && {
      id: 'size',
      head: 'Size',
      numeric: true,
      width: '5.5rem',
      cell: of(({ size }) => <span className="faint">{bytes(size)}</span>),
    },
  ];
  return columns.filter((column) => column !== false);
}

function keyOf(row: Row): string {
  if (row.kind === 'message') return idOf(row);
  return row.kind === 'gap' ? `gap ${row.partition}:${row.from}` : `turn ${row.number}`;
}

/** What stands in the place of messages that are not there. */
function markText(row: Exclude<Row, Message>): string {
  if (row.kind === 'turn') {
    return row.closed
      ? 'The topic is closed: nothing follows unless it is opened again'
      : 'The topic is open again';
  }
  const { partition, from, to, why } = row;
  if (why === 'recreated') return 'The topic was deleted and made again: from here on it is the new one';
  const reason = why === 'retention' ? 'removed by retention' : why === 'missed' ? 'not received' : why;
  return `${counted(to - from, 'message')} not shown: partition ${partition}, offsets ${grouped(from)} to ${grouped(to - 1)} (${reason})`;
}

/** Why the list is empty. */
function Nothing({ shown: { page, live, at, listed } }: { shown: Shown }) {
  if (page.isPending) return <Loading what="messages" />;
  if (listed.hidden > 0) return <p>No message matches the filter: {grouped(listed.hidden)} hidden.</p>;
  if (live) return <p>Waiting for the next message.</p>;
  const all = at.from === NEWEST || at.from === 'earliest';
  return <p>{all ? 'No messages yet.' : 'No messages from here on.'}</p>;
}

interface PagerProps {
  readonly topic: Topic;
  readonly shown: Shown;
  readonly onFrom: (from: string) => void;
}

/** Walks through one partition by offset. */
function Pager({ topic, shown, onFrom }: PagerProps) {
  const page = shown.page.data;
  const single = topic.config.partitions === 1 ? 0 : shown.at.partition;
  const messages = page?.messages ?? NO_MESSAGES;
  const start = topic.partitions.find((one) => one.partition === single)?.start ?? 0;
  const older = single !== undefined && page ? olderFrom(shown.at.from, messages, start, PAGE) : null;
  const newer = single !== undefined && page && !page.upToDate ? page.next.get(single) : undefined;
  return (
    <div className="pager">
      {/* Not disabled, also where there is no further page: who walks with them would lose the focus at each. */}
      <button
        type="button"
        aria-disabled={older === null}
        onClick={() => older === null || onFrom(String(older))}
      >
        Older
      </button>
      <button
        type="button"
        aria-disabled={newer === undefined}
        onClick={() => newer === undefined || onFrom(String(newer))}
      >
        Newer
      </button>
      <span className="faint">
        {counted(messages.length, 'message')} read{page?.each && `: ${eachOf(topic, shown.at, page.each)}`}.
        {page?.each && !page.upToDate && shown.at.from === NEWEST && ' Large ones left no room for all.'}{' '}
        Looking has no effect on any consumer.
        {single === undefined && ' Choose a partition to page through it.'}
      </span>
    </div>
  );
}

/** What was read of many partitions. */
function eachOf({ partitions }: Topic, { from }: ReadAt, each: number): string {
  const which = from.startsWith('tail:') ? 'newest' : from === 'earliest' ? 'oldest' : 'first from then on';
  return `the ${which}${each > 1 ? `, up to ${grouped(each)},` : ''} of each of ${grouped(partitions.length)} partitions`;
}
