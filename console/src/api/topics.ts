import { keepPreviousData, type QueryClient, useQuery } from '@tanstack/react-query';
import type { Patch } from '../edit/changes';
import type { Version } from '../edit/editor';
import { type Listing, PAGE_ROWS } from '../list/pages';
import { api, ask, bodyOf, origin, type Topic, type TopicConfig, type Trimmed, topicUrl } from './client';

const LIVE_MS = 2000;
const READY_MS = 5000;

/** Topics whose name contains `q`. */
export const topicListing = (ns: string, q: string): Listing<Topic> => ({
  key: ['topics', ns, q],
  read: async (cursor, signal) => {
    const query = { limit: PAGE_ROWS, ...(q && { q }), ...(cursor && { cursor }) };
    return bodyOf(await api.GET('/v1/ns/{ns}/topics', { params: { path: { ns }, query }, signal }));
  },
});

/** Names that are suggested at once. */
const NAMES = 20;

/** The first names that contain `q`. */
export function useTopicNames(ns: string, q: string) {
  return useQuery({
    queryKey: ['topic-names', ns, q],
    queryFn: async ({ signal }) => {
      const query = { limit: NAMES, ...(q && { q }) };
      const answer = await api.GET('/v1/ns/{ns}/topics', { params: { path: { ns }, query }, signal });
      return bodyOf(answer).items.map(({ name }) => name);
    },
    staleTime: 10_000,
    placeholderData: keepPreviousData,
  });
}

export interface Described {
  readonly topic: Topic;
  /** Names the configuration that was read, for `If-Match`. */
  readonly etag: string;
}

export async function describeTopic(ns: string, topic: string, signal?: AbortSignal): Promise<Described> {
  const answer = await api.GET('/v1/ns/{ns}/topics/{topic}', { params: { path: { ns, topic } }, signal });
  return { topic: bodyOf(answer), etag: answer.response.headers.get('ETag') ?? '' };
}

export const topicKey = (ns: string, topic: string) => ['topic', ns, topic] as const;

export function useTopic(ns: string, topic: string) {
  return useQuery({
    queryKey: topicKey(ns, topic),
    queryFn: ({ signal }) => describeTopic(ns, topic, signal),
    refetchInterval: LIVE_MS,
    staleTime: 1000,
  });
}

export const versionOf = ({ topic, etag }: Described): Version<TopicConfig> => ({
  config: topic.config,
  version: topic.version,
  etag,
});

/** Whether the gateway is there and reaches storage: also for pages that ask for nothing else, and before what they ask fails. */
export function useReady() {
  return useQuery({
    queryKey: ['ready'],
    queryFn: async ({ signal }) => (await ask(`${origin()}/readyz`, { cache: 'no-store', signal })).ok,
    refetchInterval: READY_MS,
    retry: false,
  });
}

/** Limits and version of the gateway, and what storage can do: another may be behind the same address tomorrow. */
export function useService() {
  return useQuery({
    queryKey: ['service'],
    queryFn: async ({ signal }) => bodyOf(await api.GET('/v1', { signal })),
    staleTime: 60_000,
  });
}

export async function createTopic(ns: string, topic: string, config: Partial<TopicConfig>) {
  const answer = await api.PUT('/v1/ns/{ns}/topics/{topic}', {
    params: { path: { ns, topic }, header: { 'If-None-Match': '*' } },
    body: config as TopicConfig,
  });
  return bodyOf(answer, 'applied');
}

/** Deletes the life and version that `etag` names. */
export async function deleteTopic(ns: string, topic: string, etag: string) {
  const params = { path: { ns, topic }, header: { 'If-Match': etag } };
  await api.DELETE('/v1/ns/{ns}/topics/{topic}', { params });
}

/** What a trim removes: everything before this, of one partition or of all. */
export interface TrimWish {
  readonly before: string;
  readonly partition?: number;
}

/** The request that trims a topic, or only says what that would do; also shown as curl. */
export const trimRequest = (ns: string, topic: string, wish: TrimWish, dryRun: boolean) => ({
  method: 'POST' as const,
  url: `${topicUrl(ns, topic)}:trim${dryRun ? '?dry_run=true' : ''}`,
  headers: { 'Content-Type': 'application/json' },
  body: JSON.stringify(wish),
});

/** Removes the oldest messages of the life and version that `etag` names, or only says what that would do. */
export async function trim(ns: string, topic: string, etag: string, wish: TrimWish, dryRun: boolean) {
  const answer = await api.POST('/v1/ns/{ns}/topics/{topic}:trim', {
    params: {
      path: { ns, topic },
      header: { 'If-Match': etag },
      query: dryRun ? { dry_run: true } : {},
    },
    body: wish as never,
  });
  return bodyOf(answer, 'applied');
}

/** What of it is gone; and where it stopped, if something was gone by then. */
export interface Done {
  readonly messages: number;
  readonly bytes: number;
  readonly stopped: { readonly partition: number; readonly error: unknown } | null;
}

/** Removes what a preview showed, and nothing that came since. */
export async function trimAsShown(ns: string, topic: string, etag: string, shown: Trimmed): Promise<Done> {
  const done = { messages: 0, bytes: 0 };
  for (const { partition, start, messages } of shown.partitions) {
    if (messages === 0) continue;
    try {
      const trimmed = await trim(ns, topic, etag, { partition, before: `${start}` }, false);
      done.messages += trimmed.messages;
      done.bytes += trimmed.bytes;
    } catch (error) {
      // What is gone is gone, whatever the last answer says of its own partition.
      if (done.messages === 0) throw error;
      return { ...done, stopped: { partition, error } };
    }
  }
  return { ...done, stopped: null };
}

export async function changeTopic(ns: string, topic: string, etag: string, patch: Patch): Promise<Described> {
  const answer = await api.PATCH('/v1/ns/{ns}/topics/{topic}', {
    params: { path: { ns, topic }, header: { 'If-Match': etag } },
    body: patch as never,
  });
  return { topic: bodyOf(answer, 'applied'), etag: answer.response.headers.get('ETag') ?? '' };
}

/** After one came or went: lists start again from their first page. */
export const listChanged = (client: QueryClient, ns: string, what: 'topics' | 'subscriptions' = 'topics') =>
  Promise.all([
    client.resetQueries({ queryKey: [what, ns] }),
    client.removeQueries({ queryKey: [`${what}-live`, ns] }),
  ]);

/** Sums over partitions. `null` if a shard could not be reached, so that the sum is not known. */
export function totals(topic: Topic): { records: number | null; bytes: number | null } {
  let records: number | null = 0;
  let bytes: number | null = 0;
  for (const { start, end, bytes: size } of topic.partitions) {
    records = records === null || start == null || end == null ? null : records + (end - start);
    bytes = bytes === null || size == null ? null : bytes + size;
  }
  return { records, bytes };
}

/** What the two levels together promise. */
export function tier({ default_confirm, deliver_from }: TopicConfig): string {
  if (deliver_from === 'quorum') return 'committed';
  return default_confirm === 'memory' || default_confirm === 'none' ? 'ephemeral' : 'speculative';
}
