import createClient from 'openapi-fetch';
import type { components, paths } from './schema';

export type Problem = components['schemas']['Problem'];
export type Topic = components['schemas']['Topic'];
export type TopicConfig = components['schemas']['TopicConfig'];
export type TopicPage = components['schemas']['TopicPage'];
export type Level = components['schemas']['Level'];
export type Published = components['schemas']['Published'];
export type Subscription = components['schemas']['Subscription'];
export type SubscriptionConfig = components['schemas']['SubscriptionConfig'];
export type LeasedRecord = components['schemas']['LeasedRecord'];
export type Seeked = components['schemas']['Seeked'];
export type Explained = components['schemas']['Explained'];
export type Purged = components['schemas']['Purged'];
export type Trimmed = components['schemas']['Trimmed'];
export type Redriven = components['schemas']['Redriven'];
export type Settle = components['schemas']['Settle'];
export type SettledLease = components['schemas']['SettledLease'];
export type Service = components['schemas']['Service'];

/** Longest wait for an answer. */
const TIMEOUT_MS = 15_000;

/** The gateway refused, or failed and said so. */
export class Refused extends Error {
  constructor(readonly problem: Problem) {
    super(`${problem.code}: ${problem.detail}`);
    this.name = 'Refused';
  }
}

/** There was no answer that could be understood: nobody listens, the network broke, or it took too long. */
export class Unreachable extends Error {
  constructor(
    message: string,
    readonly outcome: Problem['outcome'],
  ) {
    super(message);
    this.name = 'Unreachable';
  }
}

/** What takes back a seek or purge that failed and may have had an effect. */
export const undoOf = (error: unknown) => (error instanceof Refused ? error.problem.undo : undefined);

/** What is known of the effect of a request that ended with `error`. */
export function outcomeOf(error: unknown): Problem['outcome'] {
  if (error instanceof Refused) return error.problem.outcome ?? 'unknown';
  return error instanceof Unreachable ? error.outcome : 'unknown';
}

/**
 * `fetch` that answers when the body is there as well, and throws nothing but `Refused` and `Unreachable`, except
 * when the caller gave it up.
 */
export async function ask(input: string | Request, init?: RequestInit): Promise<Response> {
  const request = new Request(input, init);
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  const unanswered = (error: unknown, why: string, outcome: Problem['outcome']) => {
    if (request.signal.aborted) return error;
    const late = `no answer within ${TIMEOUT_MS / 1000} s`;
    return new Unreachable(timeout.aborted ? late : why, request.method === 'GET' ? 'none' : outcome);
  };
  let response: Response;
  try {
    response = await fetch(request, { signal: AbortSignal.any([request.signal, timeout]) });
  } catch (error) {
    throw unanswered(error, 'no connection to the gateway', 'unknown');
  }
  if (!response.ok && response.status !== 304) throw new Refused(await problemOf(response, request.method));
  try {
    const body = EMPTY.includes(response.status) ? null : await response.arrayBuffer();
    return new Response(body, response);
  } catch (error) {
    const settled = SETTLED.includes(response.status);
    throw unanswered(error, 'only the beginning of an answer', settled ? 'applied' : 'unknown');
  }
}

/** Statuses that come without a body. */
const EMPTY = [204, 304];
/** Statuses that say that a change took effect; others of success may have left a part of it undone. */
const SETTLED = [200, 201, 204];

async function problemOf(response: Response, method: string): Promise<Problem> {
  const text = await response.text().catch(() => '');
  if (response.headers.get('Content-Type')?.startsWith('application/problem+json')) {
    try {
      return JSON.parse(text) as Problem;
    } catch {
      // Cut off on the way: told below as what it is.
    }
  }
  return {
    type: 'about:blank',
    title: `Something on the way answered ${response.status}`,
    status: response.status,
    code: `http_${response.status}`,
    detail: text.slice(0, 300) || response.statusText || 'without a body',
    outcome: method === 'GET' ? 'none' : 'unknown',
    retryable: response.status >= 500,
    retry_after_ms: null,
    request_id: response.headers.get('X-Request-Id') ?? '',
    'violated-policies': [],
  };
}

/**
 * Where the API is, without a slash at the end. The console may live under a prefix of its own; what stands before that
 * and the API alike, where a proxy has both below a path, the gateway wrote into the page.
 */
export const origin = () => location.origin + below();

const below = () =>
  typeof document === 'undefined'
    ? ''
    : (document.querySelector<HTMLMetaElement>('meta[name="weir-api"]')?.content ?? '');

export const api = createClient<paths>({ baseUrl: origin(), fetch: (request) => ask(request) });

/** The body of an answer that has one. `outcome`: what is known if it has none. */
export function bodyOf<T>({ data }: { data?: T }, outcome: Problem['outcome'] = 'none'): T {
  if (data === undefined) throw new Unreachable('an answer without a body', outcome);
  return data;
}

export const topicPath = (ns: string, topic: string) => `/v1/ns/${ns}/topics/${topic}`;
export const topicUrl = (ns: string, topic: string) => origin() + topicPath(ns, topic);
export const subscriptionUrl = (ns: string, name: string) => `${origin()}/v1/ns/${ns}/subscriptions/${name}`;
export const socketUrl = () => `${origin().replace(/^http/, 'ws')}/v1/ws`;
