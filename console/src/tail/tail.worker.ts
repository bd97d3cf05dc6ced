/// <reference lib="webworker" />
import type { Amount } from './credit';
import { type Row, type Status, TailSession, type Target } from './session';

/**
 * The socket lives in this worker: frames are parsed here, and the page gets at most ten batches per second.
 * While held nothing is handed over, so nothing is taken and the gateway runs out of credit.
 */
export type ToWorker =
  | { readonly type: 'start'; readonly url: string; readonly target: Target }
  | { readonly type: 'hold'; readonly on: boolean }
  | { readonly type: 'took'; readonly cost: Amount; readonly subscription: number };

export interface Batch {
  readonly rows: readonly Row[];
  readonly cost: Amount;
  readonly subscription: number;
  readonly status: Status;
  /** Rows that wait in the worker because the page holds. */
  readonly held: number;
}

const BATCH_MS = 100;

let session: TailSession | null = null;
let status: Status | null = null;
let held = false;
let changed = false;
/** Rows by subscription: a reconnect while held must not mix costs of two subscriptions. */
let waiting: { rows: Row[]; cost: { msgs: number; bytes: number }; subscription: number }[] = [];

function start(url: string, target: Target): void {
  session = new TailSession(
    target,
    {
      rows: (rows, cost) => {
        const subscription = session?.subscription ?? 0;
        let last = waiting.at(-1);
        if (last?.subscription !== subscription) {
          last = { rows: [], cost: { msgs: 0, bytes: 0 }, subscription };
          waiting.push(last);
        }
        last.rows.push(...rows);
        last.cost.msgs += cost.msgs;
        last.cost.bytes += cost.bytes;
        changed = true;
      },
      status: (next) => {
        status = next;
        changed = true;
      },
    },
    {
      connect: () => new WebSocket(url, 'weir.v1.json') as never,
      after: (ms, callback) => {
        const timer = setTimeout(callback, ms);
        return () => clearTimeout(timer);
      },
      random: Math.random,
    },
  );
  session.start();
  setInterval(flush, BATCH_MS);
}

function flush(): void {
  if (!changed || !status) return;
  changed = false;
  const batches = held ? [] : waiting;
  if (!held) waiting = [];
  const count = waiting.reduce((sum, { rows }) => sum + rows.length, 0);
  const nothing = { rows: [], cost: { msgs: 0, bytes: 0 }, subscription: 0 };
  for (const batch of batches.length > 0 ? batches : [nothing]) {
    postMessage({ ...batch, status, held: count } satisfies Batch);
  }
}

addEventListener('message', ({ data }: MessageEvent<ToWorker>) => {
  if (data.type === 'start') start(data.url, data.target);
  else if (data.type === 'took') session?.took(data.cost, data.subscription);
  else {
    held = data.on;
    changed = true;
    flush();
  }
});
