import { type Message, readPage } from '../tail/message';
import { ask, type Published, Refused, type Topic, topicUrl } from './client';
import type { components } from './schema';

export interface ReadAt {
  readonly from: string;
  readonly partition?: number | undefined;
  readonly limit: number;
  /** Encoded bytes at most; absent: what the gateway thinks right. */
  readonly maxBytes?: number;
}

export function readUrl(ns: string, topic: string, { from, partition, limit, maxBytes }: ReadAt): string {
  const query = new URLSearchParams({ from, limit: String(limit) });
  if (partition !== undefined) query.set('partition', String(partition));
  if (maxBytes !== undefined) query.set('max_bytes', String(maxBytes));
  return `${topicUrl(ns, topic)}/messages?${query.toString().replaceAll('%3A', ':')}`;
}

/** The life of a topic that is looked at: another has other messages at the same offsets, and is answered 410. */
export type Life = Pick<Topic, 'ns' | 'name' | 'incarnation'>;

/** What was found, newest first, and where each partition that was read goes on. */
export interface Peek {
  readonly messages: readonly Message[];
  /** Offset after the last message that was read, by partition. Of many partitions, those that had one. */
  readonly next: ReadonlyMap<number, number>;
  readonly upToDate: boolean;
  /** So many of each partition were read at most, because there are many; `null`: those nearest to where it looked. */
  readonly each: number | null;
}

/** Partitions that are read one by one where all are looked at, and chosen from a list. More of them are one request. */
export const APART_MAX = 16;
/** Encoded bytes that one answer may hold, which is as many as the gateway gives. */
const ANSWER_BYTES = 4 * 1024 * 1024;

/**
 * Looks at one partition, or at all of them and keeps those nearest to where it looked; of many, the first of each.
 * Reading has no effect on anyone else.
 */
export async function peek(topic: Topic, at: ReadAt, signal?: AbortSignal): Promise<Peek> {
  const count = topic.partitions.length;
  if (at.partition === undefined && count > APART_MAX) return peekEach(topic, asOne(at, count), signal);
  const wanted =
    at.partition === undefined ? topic.partitions.map(({ partition }) => partition) : [at.partition];
  const pages = await Promise.all(
    wanted.map(async (partition) => ({
      partition,
      ...(await readWhole(topic, { ...at, partition }, signal)),
    })),
  );
  const messages = pages.flatMap((page) => page.messages).sort(newestFirst);
  return {
    messages: isFromEnd(at) ? messages.slice(0, at.limit) : messages.slice(-at.limit),
    next: new Map(pages.map(({ partition, next }) => [partition, next])),
    upToDate: pages.every(({ upToDate }) => upToDate),
    each: null,
  };
}

const isFromEnd = ({ from }: ReadAt) => from.startsWith('tail:');

const newestFirst = (a: Message, b: Message) =>
  b.ts - a.ts || b.partition - a.partition || b.offset - a.offset;

/** The same place as one read of all `count` partitions, which takes as many of each. */
export function asOne(at: ReadAt, count: number): ReadAt {
  if (at.partition !== undefined || count === 1) return at;
  const each = Math.ceil(at.limit / count);
  return { from: isFromEnd(at) ? `tail:${each}` : at.from, limit: each * count };
}

/** Of each of many partitions as many, in one request. */
async function peekEach(topic: Topic, at: ReadAt, signal?: AbortSignal): Promise<Peek> {
  const { messages, upToDate } = await readMessages(topic, { ...at, maxBytes: ANSWER_BYTES }, signal);
  const next = new Map<number, number>();
  for (const { partition, offset } of messages)
    next.set(partition, Math.max(offset + 1, next.get(partition) ?? 0));
  const each = at.limit / topic.partitions.length;
  return { messages: messages.sort(newestFirst), next, upToDate, each };
}

/**
 * What `at` says of one partition. An answer holds so many bytes at most: where the newest are asked for and do not fit,
 * it ends before them, and fewer are asked for.
 */
async function readWhole(topic: Life, at: ReadAt, signal?: AbortSignal) {
  let page = await readMessages(topic, at, signal);
  let wanted = at.limit;
  while (isFromEnd(at) && !page.upToDate) {
    const found = page.messages.length;
    // As many as were asked for: what is beyond came since.
    if (found === 0 || found >= wanted) break;
    wanted = found;
    page = await readMessages(topic, { ...at, from: `tail:${wanted}`, limit: wanted }, signal);
  }
  return page;
}

/**
 * Compare the tag also of what may be kept for ever: what retention or a trim removed is still in the browser's cache, and
 * would be shown as if it were there.
 */
const CACHE = 'no-cache';

/** One page. */
export async function readMessages(topic: Life, at: ReadAt, signal?: AbortSignal) {
  const response = await askPage(topic, at, signal);
  return readPage(await response.text());
}

const askPage = ({ ns, name, incarnation }: Life, at: ReadAt, signal?: AbortSignal) =>
  ask(`${readUrl(ns, name, at)}&incarnation=${incarnation}`, {
    headers: { Accept: 'application/json' },
    cache: CACHE,
    signal: signal ?? null,
  });

export const messageUrl = (ns: string, topic: string, partition: number, offset: number) =>
  `${topicUrl(ns, topic)}/messages/${partition}/${offset}`;

/** Where the body of one message of this life is. */
export const bodyUrl = ({ ns, name, incarnation }: Life, partition: number, offset: number) =>
  `${messageUrl(ns, name, partition, offset)}?incarnation=${incarnation}`;

/** The body of a message. */
export interface Body {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly contentType: string | null;
  /** How the bytes are encoded, if nobody could undo it; otherwise `null`. */
  readonly encoding: string | null;
}

/** The body of one message, as it was before it was encoded; as it is stored if nobody here knows how to undo that. */
export async function readBody(
  topic: Life,
  partition: number,
  offset: number,
  signal?: AbortSignal,
): Promise<Body> {
  try {
    const url = bodyUrl(topic, partition, offset);
    const response = await ask(url, { cache: CACHE, signal: signal ?? null });
    const bytes = new Uint8Array(await response.arrayBuffer());
    return { bytes, contentType: response.headers.get('Content-Type'), encoding: null };
  } catch (error) {
    if (!(error instanceof Refused) || error.problem.code !== 'not_acceptable') throw error;
    return readStored(topic, partition, offset, signal);
  }
}

/** Browsers say themselves which encodings they take. In a page the body of a message is what is stored. */
async function readStored(
  topic: Life,
  partition: number,
  offset: number,
  signal?: AbortSignal,
): Promise<Body> {
  const response = await askPage(topic, { from: String(offset), partition, limit: 1 }, signal);
  const { messages } = (await response.json()) as components['schemas']['ReadPage'];
  const stored = messages.find((message) => message.offset === offset);
  if (stored?.data_base64 === undefined) throw new Error('the message is not there any more');
  return {
    bytes: Uint8Array.from(atob(stored.data_base64), (char) => char.charCodeAt(0)),
    contentType: stored.content_type ?? null,
    encoding: stored.content_encoding ?? null,
  };
}

export interface Outgoing {
  readonly body: string;
  readonly contentType: string;
  readonly key: string;
  readonly headers: readonly (readonly [string, string])[];
  /** Empty: the topic's default. */
  readonly confirm: string;
}

/** The request that publishes it, also shown as curl. */
export function publishRequest(ns: string, topic: string, out: Outgoing) {
  const headers: Record<string, string> = { 'Content-Type': out.contentType };
  if (out.key) headers['Message-Key'] = out.key;
  if (out.confirm) headers.Confirm = out.confirm;
  for (const [name, value] of out.headers) headers[`Message-Header-${name}`] = value;
  return { method: 'POST' as const, url: `${topicUrl(ns, topic)}/messages`, headers, body: out.body };
}

/** Values as `fetch` takes them: a character for each byte. Without this it sends Latin-1, and refuses all that is beyond. */
const inUtf8 = (headers: Record<string, string>) =>
  Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [
      name,
      Array.from(new TextEncoder().encode(value), (byte) => String.fromCharCode(byte)).join(''),
    ]),
  );

export interface Receipt {
  readonly published: Published;
  readonly serverTiming: string | null;
  readonly location: string | null;
  /** Milliseconds between sending and the answer, as this browser saw it. */
  readonly roundTrip: number;
}

export async function publish(ns: string, topic: string, out: Outgoing): Promise<Receipt> {
  const { method, url, headers, body } = publishRequest(ns, topic, out);
  const start = performance.now();
  const response = await ask(url, { method, headers: inUtf8(headers), body: new TextEncoder().encode(body) });
  const roundTrip = performance.now() - start;
  return {
    published: (await response.json()) as Published,
    serverTiming: response.headers.get('Server-Timing'),
    location: response.headers.get('Location'),
    roundTrip,
  };
}
