import { afterEach, describe, expect, test, vi } from 'vitest';

vi.hoisted(() => vi.stubGlobal('location', { origin: 'http://weir.test' }));
const { ask, bodyOf, outcomeOf, Refused, undoOf, Unreachable } = await import('./client');
const { createTopic, trimAsShown } = await import('./topics');

afterEach(() => vi.restoreAllMocks());

const answers = (response: () => Response | Promise<Response>) =>
  vi.spyOn(globalThis, 'fetch').mockImplementation(async () => response());

/** An answer whose head came, and whose body then broke off. */
const brokenOff = (status: number) =>
  new Response(
    new ReadableStream({
      start: (stream) => {
        stream.enqueue(new TextEncoder().encode('{"par'));
        stream.error(new TypeError('terminated'));
      },
    }),
    { status, headers: { 'Content-Type': 'application/json' } },
  );

const url = 'http://weir.test/v1/x';
const failure = (asked: Promise<unknown>) =>
  asked.then(
    () => null,
    (error: unknown) => error,
  );

describe('what is known of a request that went wrong', () => {
  test('a network failure after sending leaves the outcome of a change open, and of a look none', async () => {
    answers(() => Promise.reject(new TypeError('network')));
    expect(outcomeOf(await failure(ask(url, { method: 'POST' })))).toBe('unknown');
    expect(outcomeOf(await failure(ask(url)))).toBe('none');
  });

  test('an answer that broke off is told as such, and its head says what became of the change', async () => {
    answers(() => brokenOff(201));
    const error = await failure(ask(url, { method: 'POST' }));
    expect(error).toBeInstanceOf(Unreachable);
    expect(outcomeOf(error)).toBe('applied');
    expect(outcomeOf(await failure(createTopic('default', 't', {})))).toBe('applied');
    expect(outcomeOf(await failure(ask(url)))).toBe('none');
  });

  test('an answer that broke off below the level asked for is not known to be applied', async () => {
    answers(() => brokenOff(202));
    expect(outcomeOf(await failure(ask(url, { method: 'POST' })))).toBe('unknown');
  });

  test('a refusal that broke off leaves the outcome of a change open', async () => {
    answers(() => brokenOff(503));
    expect(outcomeOf(await failure(ask(url, { method: 'POST' })))).toBe('unknown');
    expect(outcomeOf(await failure(ask(url)))).toBe('none');
  });

  test('a problem says itself what it did, and if it does not, nothing is known', async () => {
    const problem = (more: object) =>
      new Response(JSON.stringify({ code: 'timeout', ...more }), {
        status: 504,
        headers: { 'Content-Type': 'application/problem+json' },
      });
    answers(() => problem({ outcome: 'applied' }));
    expect(outcomeOf(await failure(ask(url, { method: 'POST' })))).toBe('applied');
    answers(() => problem({}));
    const error = await failure(ask(url, { method: 'POST' }));
    expect(error).toBeInstanceOf(Refused);
    expect(outcomeOf(error)).toBe('unknown');
    expect(undoOf(error)).toBeUndefined();
    answers(() => problem({ outcome: 'unknown', undo: 'snap_1' }));
    expect(undoOf(await failure(ask(url, { method: 'POST' })))).toBe('snap_1');
  });

  test('of an error of the console itself nothing is known', () => {
    expect(outcomeOf(new SyntaxError('not JSON'))).toBe('unknown');
  });

  test('an empty answer to a change that succeeded', () => {
    expect(outcomeOf(thrown(() => bodyOf({}, 'applied')))).toBe('applied');
  });

  test('what the caller gave up is not told as a failure', async () => {
    const given = new AbortController();
    answers(() => {
      given.abort(new Error('given up'));
      return brokenOff(200);
    });
    expect(await failure(ask(url, { signal: given.signal }))).not.toBeInstanceOf(Unreachable);
  });
});

describe('a trim of several partitions', () => {
  const row = (partition: number) => ({ partition, start: 4, messages: 2, bytes: 8 });
  const shown = { dry_run: true, messages: 4, bytes: 16, partitions: [row(0), row(1)] };
  /** The request of this number is refused, the others are answered. */
  const refuseThe = (number: number) => {
    let asked = 0;
    answers(() => {
      asked += 1;
      const refused = { code: 'unavailable', outcome: 'none' };
      return asked === number
        ? new Response(JSON.stringify(refused), {
            status: 503,
            headers: { 'Content-Type': 'application/problem+json' },
          })
        : Response.json({ ...shown, messages: 2, bytes: 8 });
    });
  };

  test('that is stopped says what is gone', async () => {
    refuseThe(2);
    const done = await trimAsShown('default', 'orders', '"1"', shown);
    expect(done).toMatchObject({ messages: 2, bytes: 8, stopped: { partition: 1 } });
    expect(outcomeOf(done.stopped?.error)).toBe('none');
  });

  test('that removed nothing is refused as a whole', async () => {
    refuseThe(1);
    expect(outcomeOf(await failure(trimAsShown('default', 'orders', '"1"', shown)))).toBe('none');
  });
});

test('an answer comes whole, with its head', async () => {
  answers(() => new Response('[1]', { status: 201, headers: { ETag: '"a"' } }));
  const response = await ask(url);
  expect([response.status, response.headers.get('ETag'), await response.json()]).toEqual([201, '"a"', [1]]);
  answers(() => new Response(null, { status: 304 }));
  expect((await ask(url)).status).toBe(304);
});

function thrown(call: () => unknown): unknown {
  try {
    call();
  } catch (error) {
    return error;
  }
  return null;
}
