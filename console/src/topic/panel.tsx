import { useMutation, useQuery } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';
import type { Topic } from '../api/client';
import { bodyUrl, messageUrl, readBody, readMessages } from '../api/messages';
import { useSettings } from '../app/settings';
import { curl } from '../curl/curl';
import { bytes, grouped } from '../format/number';
import { instant, zoneName } from '../format/time';
import type { Message } from '../tail/message';
import { CopyButton } from '../ui/copy';
import { Segments } from '../ui/field';
import { CloseIcon } from '../ui/icons';
import { Loading, ProblemBox } from '../ui/problem';
import { BodyView, HexView, textOf } from './body';

/** Larger bodies are read when asked for. */
const AUTO_BYTES = 64 * 1024;
/** Still larger ones are only downloaded. */
const SHOW_BYTES = 1024 * 1024;

interface PanelProps {
  readonly topic: Topic;
  readonly partition: number;
  readonly offset: number;
  /** The row that was opened, if it is on the screen. */
  readonly known: Message | undefined;
  readonly onClose: () => void;
}

export function MessagePanel({ topic, partition, offset, known, onClose }: PanelProps) {
  const { ns, name, incarnation } = topic;
  const { zone } = useSettings();
  const row = useQuery({
    queryKey: ['message', ns, name, incarnation, partition, offset],
    queryFn: async ({ signal }) => {
      const page = await readMessages(topic, { from: String(offset), partition, limit: 1 }, signal);
      return page.messages.find((message) => message.offset === offset) ?? null;
    },
    enabled: known === undefined,
    // What is not there may come.
    staleTime: ({ state }) => (state.data ? Number.POSITIVE_INFINITY : 0),
  });
  const message = known ?? row.data ?? undefined;
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key === 'Escape' && !(event.target as HTMLElement).closest('[role=dialog], [role=listbox]'))
        onClose();
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, [onClose]);
  const url = messageUrl(ns, name, partition, offset);
  return (
    <aside className="panel" aria-label={`Message ${partition}:${offset}`}>
      <div className="panel-head">
        <h2>
          Offset <span className="mono">{grouped(offset)}</span>
        </h2>
        <span className="spacer" />
        <CopyButton text={curl({ url })} label="curl" />
        <CopyButton text={() => location.href} label="Link" />
        <button type="button" className="quiet icon-only" aria-label="Close message" onClick={onClose}>
          <CloseIcon />
        </button>
      </div>
      {row.isLoading && <Loading what="the message" />}
      {row.error && <ProblemBox error={row.error} onRetry={() => void row.refetch()} />}
      {row.data === null && !known && <p>There is no message at this offset any more, or not yet.</p>}
      {message && (
        <>
          <dl className="facts">
            <dt>Partition</dt>
            <dd>{partition}</dd>
            <dt>Time</dt>
            <dd className="mono">
              {instant(message.ts, zone)} <span className="faint">{zoneName(zone)}</span>
            </dd>
            <dt>Key</dt>
            <dd className="mono">{message.key ?? <span className="faint">none</span>}</dd>
            <dt>Content type</dt>
            <dd className="mono">{message.contentType ?? <span className="faint">not named</span>}</dd>
            {message.encoding !== null && (
              <>
                <dt>Encoding</dt>
                <dd className="mono">{message.encoding}</dd>
              </>
            )}
          </dl>
          <Headers headers={message.headers} />
          <Body topic={topic} message={message} />
        </>
      )}
    </aside>
  );
}

function Headers({ headers }: { headers: Message['headers'] }) {
  return (
    <section>
      <h3>Headers</h3>
      {headers.length === 0 ? (
        <p className="faint">none</p>
      ) : (
        <dl className="facts headers">
          {headers.map(([name, value]) => (
            <div key={name}>
              <dt className="mono">{name}</dt>
              <dd className="mono">{value}</dd>
            </div>
          ))}
        </dl>
      )}
    </section>
  );
}

/** Lets the browser save `bytes` as a file. */
function save(file: string, bytes: Uint8Array<ArrayBuffer>) {
  const url = URL.createObjectURL(new Blob([bytes], { type: 'application/octet-stream' }));
  const link = document.createElement('a');
  Object.assign(link, { href: url, download: file }).click();
  // Not before the browser has begun to read it.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

interface BodyProps {
  readonly topic: Topic;
  readonly message: Message;
}

function Body({ topic, message }: BodyProps) {
  const { ns, name, incarnation } = topic;
  const { partition, offset, size } = message;
  const [wanted, setWanted] = useState(size <= AUTO_BYTES);
  const place = useRef<HTMLElement>(null);
  // The button goes with what it asks for.
  const load = () => {
    place.current?.focus();
    setWanted(true);
  };
  const [view, setView] = useState<'body' | 'raw' | 'hex' | null>(null);
  const body = useQuery({
    queryKey: ['body', ns, name, incarnation, partition, offset],
    queryFn: ({ signal }) => readBody(topic, partition, offset, signal),
    enabled: wanted,
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 10_000,
  });
  const file = `${name}-${partition}-${offset}`;
  // What the browser cannot decode, a link to it would not download.
  const saving = useMutation({
    mutationFn: () => readBody(topic, partition, offset),
    onSuccess: ({ bytes }) => save(file, bytes),
  });
  const data = body.data?.bytes;
  const text = data ? textOf(data) : null;
  const shown = view ?? (data && text === null ? 'hex' : 'body');
  return (
    <section className="panel-body" aria-label="Body" ref={place} tabIndex={-1}>
      <div className="panel-row">
        <h3>Body</h3>
        <span className="faint">{bytes(data?.length ?? size)}</span>
        <span className="spacer" />
        {text !== null && <CopyButton text={text} label="Copy" />}
        {message.encoding === null ? (
          <a className="button quiet" href={bodyUrl(topic, partition, offset)} download={file}>
            Download
          </a>
        ) : (
          <button type="button" className="quiet" disabled={saving.isPending} onClick={() => saving.mutate()}>
            Download
          </button>
        )}
      </div>
      {saving.error && <ProblemBox error={saving.error} />}
      {data && (
        <Segments
          label="Show the body as"
          value={shown}
          options={[
            { id: 'body', label: 'Formatted', disabled: text === null },
            { id: 'raw', label: 'Raw', disabled: text === null },
            { id: 'hex', label: 'Hex' },
          ]}
          onChange={setView}
        />
      )}
      {body.isFetching && <Loading what="the body" />}
      {body.error && <ProblemBox error={body.error} onRetry={() => void body.refetch()} />}
      {!wanted &&
        (size <= SHOW_BYTES ? (
          <button type="button" onClick={load}>
            Load body, {bytes(size)}
          </button>
        ) : (
          <p className="note">Too large to be shown here. Download it.</p>
        ))}
      {body.data?.encoding && (
        <p className="note">
          It is encoded as <code>{body.data.encoding}</code>, which neither this browser nor the gateway
          decodes.
        </p>
      )}
      {data && text === null && shown === 'hex' && <p className="note">This is not UTF-8 text.</p>}
      {data &&
        (shown === 'hex' || text === null ? (
          <HexView data={data} />
        ) : (
          <BodyView text={text} formatted={shown === 'body'} />
        ))}
    </section>
  );
}
