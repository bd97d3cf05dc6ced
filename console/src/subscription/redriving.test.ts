import { afterEach, describe, expect, it, vi } from 'vitest';
import { redrive } from '../api/subscriptions';
import { redriveAll } from './redriving';

vi.mock('../api/subscriptions', () => ({ redrive: vi.fn() }));

const asked = vi.mocked(redrive);
afterEach(() => asked.mockReset());

/** Dead letters 0:0 to 0:n, answered as the gateway would. */
function gateway(total: number, stopAfter = Number.POSITIVE_INFINITY) {
  asked.mockImplementation(async (_ns, _name, wish, dryRun) => {
    const from = Number(wish.cursor ?? 0);
    const to = Math.min(total, from + (wish.max ?? 0));
    const redriven = wish.ids ? [...wish.ids] : Array.from({ length: to - from }, (_, n) => `0:${from + n}`);
    const stopped = from >= stopAfter;
    const next = wish.ids || to === total ? null : String(to);
    return { dry_run: dryRun, redriven, dead_again: stopped ? 1 : 0, stopped, next };
  });
}

const all = (wish: object, onProgress = () => true, dryRun = false) =>
  redriveAll({ ns: 'n', name: 's', wish, dryRun, onProgress });

describe('redriving', () => {
  it('goes on at the cursor until there is nothing beyond, or as many as were asked for', async () => {
    gateway(2500);
    expect(await all({ max: 10_000 })).toMatchObject({ redriven: 2500, stopped: false });
    expect(asked).toHaveBeenCalledTimes(3);
    expect(await all({ max: 1200 })).toMatchObject({ redriven: 1200 });
    expect(asked.mock.lastCall?.[2]).toMatchObject({ max: 200, cursor: '1000' });
  });

  it('asks for no more at a time than a rate allows, but for a dry run', async () => {
    gateway(100);
    await all({ max: 100, rate: 10 });
    expect(asked).toHaveBeenCalledTimes(5);
    asked.mockClear();
    await all({ max: 100, rate: 10 }, () => true, true);
    expect(asked).toHaveBeenCalledTimes(1);
  });

  it('ends when ten are dead again, however few one request redrives', async () => {
    gateway(100);
    const plain = asked.getMockImplementation();
    asked.mockImplementation(async (...request) => {
      const answer = await plain?.(...request);
      if (!answer) throw new Error('the gateway answers');
      return { ...answer, dead_again: 1 };
    });
    expect(await all({ max: 100, rate: 1 })).toMatchObject({ stopped: true, redriven: 20, deadAgain: 10 });
  });

  it('takes ids in steps, without a cursor', async () => {
    gateway(0);
    const ids = Array.from({ length: 1500 }, (_, n) => `0:${n}`);
    expect(await all({ ids })).toMatchObject({ redriven: 1500 });
    expect(asked.mock.calls.map(([, , wish]) => wish.ids?.length)).toEqual([1000, 500]);
  });

  it('ends when it is told to, and when too many are dead again', async () => {
    gateway(5000);
    const told: number[] = [];
    const done = await redriveAll({
      ns: 'n',
      name: 's',
      wish: { max: 5000 },
      dryRun: false,
      onProgress: ({ redriven }) => told.push(redriven) < 2,
    });
    expect([done.redriven, told]).toEqual([2000, [1000, 2000]]);
    gateway(5000, 3000);
    expect(await all({ max: 5000 })).toMatchObject({ stopped: true, redriven: 4000, deadAgain: 1 });
  });
});
