import {
  keepPreviousData,
  type QueryClient,
  useInfiniteQuery,
  useQueries,
  useQuery,
} from '@tanstack/react-query';
import { useMemo } from 'react';
import { api, bodyOf, type Topic, type TopicConfig, type TopicPage } from './client';

/** Rows per request. Two of these cover a screen, and only those are asked for again to keep rates live. */
export const PAGE_ROWS = 200;
const LIVE_MS = 2000;

async function listTopics(ns: string, q: string, cursor: string | undefined, signal?: AbortSignal) {
  const query = { limit: PAGE_ROWS, ...(q && { q }), ...(cursor && { cursor }) };
  return bodyOf(await api.GET('/v1/ns/{ns}/topics', { params: { path: { ns }, query }, signal }));
}

/** The list as far as it was read, page by page in name order. An empty list is asked for again until it is not. */
export function useTopicPages(ns: string, q: string) {
  return useInfiniteQuery({
    queryKey: ['topics', ns, q],
    queryFn: ({ pageParam, signal }) => listTopics(ns, q, pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    placeholderData: keepPreviousData,
    staleTime: 10_000,
    refetchInterval: ({ state }) =>
      state.status === 'error' || state.data?.pages[0]?.items.length === 0 ? LIVE_MS : false,
  });
}

/** Keeps the pages numbered `visible` up to date while the page is seen; answers topics by name. */
export function useLivePages(ns: string, q: string, pages: readonly TopicPage[], visible: readonly number[]) {
  return useQueries({
    queries: visible.map((index) => {
      const cursor = index === 0 ? undefined : (pages[index - 1]?.next ?? undefined);
      return {
        queryKey: ['topics-live', ns, q, cursor ?? ''],
        queryFn: ({ signal }: { signal: AbortSignal }) => listTopics(ns, q, cursor, signal),
        initialData: pages[index],
        initialDataUpdatedAt: Date.now(),
        staleTime: LIVE_MS,
        refetchInterval: LIVE_MS,
        enabled: index === 0 || cursor !== undefined,
      };
    }),
    combine: (results) => ({
      byName: new Map(results.flatMap(({ data }) => data?.items ?? []).map((topic) => [topic.name, topic])),
      updatedAt: Math.max(0, ...results.map((result) => result.dataUpdatedAt)),
      error: results.find((result) => result.error)?.error ?? null,
    }),
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

/** Limits and version of the gateway. */
export function useService() {
  return useQuery({
    queryKey: ['service'],
    queryFn: async ({ signal }) => bodyOf(await api.GET('/v1', { signal })),
    staleTime: Number.POSITIVE_INFINITY,
  });
}

export async function createTopic(ns: string, topic: string, config: Partial<TopicConfig>) {
  const answer = await api.PUT('/v1/ns/{ns}/topics/{topic}', {
    params: { path: { ns, topic }, header: { 'If-None-Match': '*' } },
    body: config as TopicConfig,
  });
  return bodyOf(answer, 'applied');
}

export async function deleteTopic(ns: string, topic: string) {
  await api.DELETE('/v1/ns/{ns}/topics/{topic}', { params: { path: { ns, topic } } });
}

/** What differs between two configurations, in the form that `PATCH` takes. */
export type ConfigPatch = Record<string, unknown>;

export async function changeTopic(
  ns: string,
  topic: string,
  etag: string,
  patch: ConfigPatch,
): Promise<Described> {
  const answer = await api.PATCH('/v1/ns/{ns}/topics/{topic}', {
    params: { path: { ns, topic }, header: { 'If-Match': etag } },
    body: patch as never,
  });
  return { topic: bodyOf(answer, 'applied'), etag: answer.response.headers.get('ETag') ?? '' };
}

/** After a topic came or went: lists start again from their first page. */
export const listChanged = (client: QueryClient, ns: string) =>
  Promise.all([
    client.resetQueries({ queryKey: ['topics', ns] }),
    client.removeQueries({ queryKey: ['topics-live', ns] }),
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

/** Topics of all pages, each name once, newest values first. */
export function useRows(pages: readonly TopicPage[] | undefined, live: ReadonlyMap<string, Topic>): Topic[] {
  return useMemo(() => {
    const rows = new Map<string, Topic>();
    for (const page of pages ?? []) {
      for (const topic of page.items) rows.set(topic.name, live.get(topic.name) ?? topic);
    }
    return [...rows.values()];
  }, [pages, live]);
}
