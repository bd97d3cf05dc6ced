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
  | { readonly type: 'took'; readonly cost: Amount };

export interface Batch {
  readonly rows: readonly Row[];
  readonly cost: Amount;
  readonly status: Status;
  /** Rows that wait in the worker because the page holds. */
  readonly held: number;
}

const BATCH_MS = 100;

let session: TailSession | null = null;
let status: Status | null = null;
let held = false;
let changed = false;
const nothing = () => ({ rows: [] as Row[], cost: { msgs: 0, bytes: 0 } });
/** Received and not handed over: at most a window, however often the connection is lost. */
let waiting = nothing();

function start(url: string, target: Target): void {
  session = new TailSession(
    target,
    {
      rows: (rows, cost) => {
        waiting.rows.push(...rows);
        waiting.cost.msgs += cost.msgs;
        waiting.cost.bytes += cost.bytes;
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
  const batch = held ? nothing() : waiting;
  if (!held) waiting = nothing();
  postMessage({ ...batch, status, held: waiting.rows.length } satisfies Batch);
}

addEventListener('message', ({ data }: MessageEvent<ToWorker>) => {
  if (data.type === 'start') start(data.url, data.target);
  else if (data.type === 'took') session?.took(data.cost);
  else {
    held = data.on;
    changed = true;
    flush();
  }
});
