import { useCallback, useEffect, useRef, useState } from 'react';
import { Credit } from './credit';
import { Ring } from './ring';
import { type Row, type Status, type Target, WINDOW } from './session';
import type { Batch, ToWorker } from './tail.worker';

export const RING_ROWS = 5000;

export interface Tail {
  readonly rows: Ring<Row>;
  /** Changes whenever `rows` did. */
  readonly version: number;
  /** Messages that came. */
  readonly received: number;
  /** `null` while it is off. */
  readonly status: Status | null;
  /** Rows received but not shown because of the pause. */
  readonly held: number;
  readonly paused: boolean;
  pause(on: boolean): void;
  /** Starts anew from the newest message, leaving out what waits. */
  skip(): void;
}

/** `message` is empty where its code could not be loaded, as after the gateway became another version. */
const broken = (message: string): Status => ({
  phase: 'ended',
  credit: new Credit(WINDOW).view(),
  why: message || 'its code could not be loaded. Load the page anew.',
  problem: null,
  reconnects: 0,
  failures: 0,
  closed: false,
});

/** Follows `target` while it is not `null`. A hidden page holds, as a pause does. */
export function useTail(target: Target | null, url: string): Tail {
  const ring = useRef(new Ring<Row>(RING_ROWS));
  const worker = useRef<Worker | null>(null);
  const [view, setView] = useState<{
    version: number;
    received: number;
    status: Status | null;
    held: number;
  }>({
    version: 0,
    received: 0,
    status: null,
    held: 0,
  });
  const [paused, setPaused] = useState(false);
  const identity = target ? JSON.stringify(target) : null;
  // Of one target: another starts where it says.
  const [skip, setSkip] = useState({ of: identity, count: 0 });
  const skips = skip.of === identity ? skip.count : 0;

  useEffect(() => {
    if (identity === null) return;
    const followed = JSON.parse(identity) as Target;
    const current = new Worker(new URL('./tail.worker.ts', import.meta.url), { type: 'module' });
    const tell = (message: ToWorker) => current.postMessage(message);
    worker.current = current;
    ring.current.clear();
    setPaused(false);
    current.onmessage = ({ data }: MessageEvent<Batch>) => {
      for (const row of data.rows) ring.current.push(row);
      const messages = data.rows.filter(({ kind }) => kind === 'message').length;
      if (data.cost.msgs > 0) tell({ type: 'took', cost: data.cost });
      setView((before) => ({
        version: before.version + 1,
        received: before.received + messages,
        status: data.status,
        held: data.held,
      }));
    };
    current.onerror = ({ message }) =>
      setView((before) => ({ ...before, version: before.version + 1, status: broken(message) }));
    tell({ type: 'start', url, target: skips > 0 ? { ...followed, from: 'latest' } : followed });
    return () => {
      current.terminate();
      worker.current = null;
      setView((before) => ({ version: before.version + 1, received: 0, status: null, held: 0 }));
    };
  }, [identity, url, skips]);

  useEffect(() => {
    if (identity === null) return;
    const apply = () =>
      worker.current?.postMessage({ type: 'hold', on: paused || document.hidden } satisfies ToWorker);
    apply();
    document.addEventListener('visibilitychange', apply);
    return () => document.removeEventListener('visibilitychange', apply);
  }, [paused, identity]);

  const skipOn = useCallback(
    () => setSkip(({ of, count }) => ({ of: identity, count: of === identity ? count + 1 : 1 })),
    [identity],
  );
  return { rows: ring.current, ...view, paused, pause: setPaused, skip: skipOn };
}
