import { keepPreviousData, useQuery } from '@tanstack/react-query';
import type { Patch } from '../edit/changes';
import type { Version } from '../edit/editor';
import { type Listing, PAGE_ROWS } from '../list/pages';
import {
  api,
  ask,
  bodyOf,
  type Settle,
  type Subscription,
  type SubscriptionConfig,
  subscriptionUrl,
} from './client';
import { holder } from './holder';
import { type Held, readPulled } from './pulled';

const LIVE_MS = 2000;

/** Subscriptions whose name contains `q`, of one topic if one is named. */
export const subscriptionListing = (ns: string, q: string, topic = ''): Listing<Subscription> => ({
  key: ['subscriptions', ns, q, topic],
  read: async (cursor, signal) => {
    const query = { limit: PAGE_ROWS, ...(q && { q }), ...(topic && { topic }), ...(cursor && { cursor }) };
    return bodyOf(await api.GET('/v1/ns/{ns}/subscriptions', { params: { path: { ns }, query }, signal }));
  },
});

export interface DescribedSubscription {
  readonly subscription: Subscription;
  /** Names the configuration that was read, for `If-Match`. */
  readonly etag: string;
}

type Answer = { data?: Subscription; response: Response };

const described = (answer: Answer, outcome: 'none' | 'applied'): DescribedSubscription => ({
  subscription: bodyOf(answer, outcome),
  etag: answer.response.headers.get('ETag') ?? '',
});

const at = (ns: string, subscription: string) => ({ path: { ns, subscription } });

export async function describeSubscription(ns: string, name: string, signal?: AbortSignal) {
  const path = '/v1/ns/{ns}/subscriptions/{subscription}';
  return described(await api.GET(path, { params: at(ns, name), signal }), 'none');
}

export const subscriptionKey = (ns: string, name: string) => ['subscription', ns, name] as const;

export function useSubscription(ns: string, name: string) {
  return useQuery({
    queryKey: subscriptionKey(ns, name),
    queryFn: ({ signal }) => describeSubscription(ns, name, signal),
    refetchInterval: LIVE_MS,
    staleTime: 1000,
  });
}

export const versionOf = ({ subscription, etag }: DescribedSubscription): Version<SubscriptionConfig> => ({
  config: subscription.config,
  version: subscription.version,
  etag,
});

export async function createSubscription(ns: string, name: string, config: Patch) {
  const answer = await api.PUT('/v1/ns/{ns}/subscriptions/{subscription}', {
    params: { ...at(ns, name), header: { 'If-None-Match': '*' } },
    body: config as never,
  });
  return bodyOf(answer, 'applied');
}

export async function changeSubscription(ns: string, name: string, etag: string, patch: Patch) {
  const answer = await api.PATCH('/v1/ns/{ns}/subscriptions/{subscription}', {
    params: { ...at(ns, name), header: { 'If-Match': etag } },
    body: patch as never,
  });
  return described(answer, 'applied');
}

/** Deletes the life and version that `etag` names. */
export async function deleteSubscription(ns: string, name: string, etag: string) {
  const params = { ...at(ns, name), header: { 'If-Match': etag } };
  await api.DELETE('/v1/ns/{ns}/subscriptions/{subscription}', { params });
}

export async function setPaused(ns: string, name: string, paused: boolean) {
  const params = at(ns, name);
  const answer = paused
    ? await api.POST('/v1/ns/{ns}/subscriptions/{subscription}:pause', { params })
    : await api.POST('/v1/ns/{ns}/subscriptions/{subscription}:resume', { params });
  return described(answer, 'applied');
}

const posted = (url: string, body: object) => ({
  method: 'POST' as const,
  url,
  headers: { 'Content-Type': 'application/json' },
  body: JSON.stringify(body),
});

/** Where a seek goes: a position, or back to what stood before another seek. */
export interface SeekTarget {
  readonly to: string;
  readonly undo?: string;
}

/** The request that moves it, or only says what that would do; also shown as curl. */
export const seekRequest = (ns: string, name: string, target: SeekTarget, dryRun: boolean) =>
  posted(`${subscriptionUrl(ns, name)}:seek${dryRun ? '?dry_run=true' : ''}`, target);

/** Moves it, or only says what that would do. */
export async function seek(ns: string, name: string, target: SeekTarget, dryRun: boolean) {
  const answer = await api.POST('/v1/ns/{ns}/subscriptions/{subscription}:seek', {
    params: { ...at(ns, name), query: dryRun ? { dry_run: true } : {} },
    body: target as never,
  });
  return bodyOf(answer, 'applied');
}

/** What a purge takes. */
export type PurgeWhat = 'all' | 'dead';

/** The request that settles what waits, or only counts it; also shown as curl. */
export const purgeRequest = (ns: string, name: string, what: PurgeWhat, dryRun: boolean) =>
  posted(`${subscriptionUrl(ns, name)}:purge${dryRun ? '?dry_run=true' : ''}`, { what });

/** Settles what waits without delivering it, or only counts it. */
export async function purge(ns: string, name: string, what: PurgeWhat, dryRun: boolean) {
  const answer = await api.POST('/v1/ns/{ns}/subscriptions/{subscription}:purge', {
    params: { ...at(ns, name), query: dryRun ? { dry_run: true } : {} },
    body: { what },
  });
  return bodyOf(answer, 'applied');
}

/** A fork: its name, the instant it begins as, and what is configured otherwise. */
export interface ForkWish {
  readonly name: string;
  readonly at: string;
  readonly config?: { readonly paused: boolean };
}

/** The request that forks a subscription, also shown as curl. */
export const forkRequest = (ns: string, name: string, wish: ForkWish) =>
  posted(`${subscriptionUrl(ns, name)}:fork`, wish);

/** Makes a subscription that begins as this one stands or stood. */
export async function fork(ns: string, name: string, wish: ForkWish) {
  const path = '/v1/ns/{ns}/subscriptions/{subscription}:fork';
  return bodyOf(await api.POST(path, { params: at(ns, name), body: wish as never }), 'applied');
}

/** Where one message stands, and why. */
export async function explain(ns: string, name: string, id: string, signal?: AbortSignal) {
  const path = '/v1/ns/{ns}/subscriptions/{subscription}/explain';
  return bodyOf(await api.GET(path, { params: { ...at(ns, name), query: { id } }, signal }));
}

/** Which dead letters: these, or so many of the oldest. */
export interface RedriveWish {
  readonly ids?: readonly string[];
  readonly max?: number;
  readonly filter?: string;
  readonly rate?: number;
  readonly cursor?: string;
}

/** The request that delivers dead letters again, or only names them; also shown as curl. */
export const redriveRequest = (ns: string, name: string, wish: RedriveWish, dryRun: boolean) =>
  posted(`${subscriptionUrl(ns, name)}:redrive${dryRun ? '?dry_run=true' : ''}`, wish);

/** Delivers dead letters again, or only says which they would be. Twice is once. */
export async function redrive(ns: string, name: string, wish: RedriveWish, dryRun: boolean) {
  const answer = await api.POST('/v1/ns/{ns}/subscriptions/{subscription}:redrive', {
    params: { ...at(ns, name), query: dryRun ? { dry_run: true } : {} },
    body: wish as never,
  });
  return bodyOf(answer, 'applied');
}

/** Rows of one page of the lease table. */
const LEASE_ROWS = 100;

/** What is leased and what waits for its time, page by page, kept up to date. */
export function useLeases(ns: string, name: string, cursor: string | undefined) {
  return useQuery({
    queryKey: ['leases', ns, name, cursor ?? ''],
    queryFn: async ({ signal }) => {
      const query = { limit: LEASE_ROWS, ...(cursor && { cursor }) };
      const path = '/v1/ns/{ns}/subscriptions/{subscription}/leases';
      return bodyOf(await api.GET(path, { params: { ...at(ns, name), query }, signal }));
    },
    refetchInterval: LIVE_MS,
    staleTime: 1000,
    placeholderData: keepPreviousData,
  });
}

export interface PullWish {
  readonly max: number;
  /** Absent: as the subscription says. */
  readonly lease_ms?: number | undefined;
}

/** The request that leases messages, also shown as curl. */
export const pullRequest = (ns: string, name: string, wish: PullWish) =>
  posted(`${subscriptionUrl(ns, name)}:pull`, { ...wish, holder: holder() });

/** Leases messages; `[]` if there are none to be had now. */
export async function pull(ns: string, name: string, wish: PullWish): Promise<Held[]> {
  const { url, ...request } = pullRequest(ns, name, wish);
  const response = await ask(url, request);
  return readPulled(await response.text(), Date.now());
}

/** The request that settles leases, also shown as curl. */
export const settleRequest = (ns: string, name: string, settle: Partial<Settle>) =>
  posted(`${subscriptionUrl(ns, name)}:settle`, settle);

/** Says what becomes of leases; answers what became of each. */
export async function settle(ns: string, name: string, what: Partial<Settle>) {
  const path = '/v1/ns/{ns}/subscriptions/{subscription}:settle';
  const answer = await api.POST(path, { params: at(ns, name), body: what as Settle });
  return bodyOf(answer, 'unknown').results;
}
