import { type RedriveWish, redrive } from '../api/subscriptions';

/** Most messages of one request. */
const STEP = 1000;
/** At a rate, one request lasts about this long, so that it is seen to go on. */
const STEP_SECONDS = 2;

/** So many that are dead again end it, over all requests: each of them counts its own alone, and at a low rate never so many. */
const STOP_AFTER = 10;

export interface Progress {
  readonly redriven: number;
  readonly deadAgain: number;
  /** Too many of them were dead again. */
  readonly stopped: boolean;
}

interface Asked {
  readonly ns: string;
  readonly name: string;
  readonly wish: RedriveWish;
  readonly dryRun: boolean;
  /** Says how far it is; false ends it. */
  readonly onProgress: (progress: Progress) => boolean;
}

/** Redrives step by step, as many requests as it takes. What was redriven stays so, however it ends. */
export async function redriveAll({ ns, name, wish, dryRun, onProgress }: Asked): Promise<Progress> {
  let done: Progress = { redriven: 0, deadAgain: 0, stopped: false };
  let ids = wish.ids;
  let cursor: string | undefined;
  const { max = 0, rate, filter } = wish;
  const step = Math.min(STEP, rate && !dryRun ? rate * STEP_SECONDS : STEP);
  for (;;) {
    const left = ids ? ids.length : max - done.redriven;
    if (left <= 0) return done;
    const which = ids
      ? { ids: ids.slice(0, step) }
      : { max: Math.min(left, step), ...(cursor && { cursor }) };
    const answer = await redrive(
      ns,
      name,
      { ...which, ...(filter && { filter }), ...(rate && { rate }) },
      dryRun,
    );
    const deadAgain = done.deadAgain + answer.dead_again;
    done = {
      redriven: done.redriven + answer.redriven.length,
      deadAgain,
      stopped: answer.stopped || (!dryRun && deadAgain >= STOP_AFTER),
    };
    const goesOn = onProgress(done);
    ids = ids?.slice(step);
    cursor = answer.next ?? undefined;
    if (done.stopped || !goesOn || (!ids && !cursor)) return done;
  }
}
