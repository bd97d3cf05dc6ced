import { describe, expect, test } from 'vitest';
import { Credit } from './credit';
import { parseFrames } from './frames';
import { readPage } from './message';
import { Ring } from './ring';
import { type Row, type Socket, type Status, TailSession, type Target, WINDOW } from './session';

describe('ring', () => {
  test('keeps the newest and counts the rest', () => {
    const ring = new Ring<number>(3);
    for (let i = 0; i < 8; i += 1) ring.push(i);
    expect([0, 1, 2, 3, -1].map((i) => ring.newest(i))).toEqual([7, 6, 5, undefined, undefined]);
    expect([ring.length, ring.total]).toEqual([3, 8]);
    expect([...ring]).toEqual([7, 6, 5]);
  });
  test('is newest first before it is full', () => {
    const ring = new Ring<number>(3);
    ring.push(1);
    ring.push(2);
    expect([ring.newest(0), ring.newest(1), ring.newest(2)]).toEqual([2, 1, undefined]);
  });
});

describe('credit', () => {
  test('receiving uses it up and only taking raises it', () => {
    const credit = new Credit({ msgs: 8, bytes: 1000 });
    for (let i = 0; i < 8; i += 1) credit.receive(10);
    expect(credit.view().left).toEqual({ msgs: 0, bytes: 920 });
    expect(credit.take({ msgs: 1, bytes: 10 })).toBeNull();
    expect(credit.take({ msgs: 1, bytes: 10 })).toEqual({ msgs: 10, bytes: 1020 });
    expect(credit.view().left).toEqual({ msgs: 2, bytes: 940 });
  });
  test('bytes alone make a grant due', () => {
    const credit = new Credit({ msgs: 1000, bytes: 100 });
    credit.receive(90);
    expect(credit.take({ msgs: 1, bytes: 90 })).toEqual({ msgs: 1001, bytes: 190 });
  });
  test('what an earlier subscription left untaken is not granted again', () => {
    const before = new Credit({ msgs: 10, bytes: 100 });
    for (let i = 0; i < 6; i += 1) before.receive(30);
    before.take({ msgs: 1, bytes: 30 });
    const next = before.renewed();
    expect(next.granted).toEqual({ msgs: 5, bytes: 0 });
    expect(next.take({ msgs: 5, bytes: 150 })).toEqual({ msgs: 10, bytes: 100 });
    expect(next.renewed().granted).toEqual({ msgs: 10, bytes: 100 });
  });
  test('a limit never falls, whatever waits of an earlier subscription', () => {
    const before = new Credit({ msgs: 8, bytes: 100 });
    for (let i = 0; i < 4; i += 1) before.receive(1);
    before.receive(150);
    const next = before.renewed();
    expect(next.granted).toEqual({ msgs: 3, bytes: 0 });
    // The small ones are taken first.
    expect(next.take({ msgs: 4, bytes: 4 })).toEqual({ msgs: 7, bytes: 0 });
    expect(next.take({ msgs: 1, bytes: 150 })).toEqual({ msgs: 8, bytes: 100 });
  });
  test('an oversize message shows as no credit, never as less', () => {
    const credit = new Credit({ msgs: 10, bytes: 100 });
    credit.receive(5000);
    expect(credit.view().left).toEqual({ msgs: 9, bytes: 0 });
  });
});

describe('frames', () => {
  const BIG = '{"id":18446744073709551615,"f":1.10}';
  test('a payload keeps its digits', () => {
    const [frame] = parseFrames(
      `{"t":"msg","ch":1,"n":1,"p":2,"o":9007199254740991,"ts":5,"size":99,"key":"k","h":{"a":"b"},"data":${BIG}}`,
    );
    expect(frame?.t === 'deliveries' && frame.deliveries[0]?.message).toEqual({
      kind: 'message',
      partition: 2,
      offset: 9007199254740991,
      ts: 5,
      key: 'k',
      headers: [['a', 'b']],
      contentType: null,
      encoding: null,
      preview: BIG,
      size: BIG.length,
    });
  });
  test('lines are frames, and grouped messages are all found', () => {
    const frames = parseFrames(
      '{"t":"ping","now":1}\n{"t":"msgs","ch":1,"msgs":[{"n":1,"p":0,"o":1,"ts":1,"size":1,"data":1},{"n":2,"p":0,"o":2,"ts":1,"size":2,"data":2}]}\n',
    );
    expect(frames.map((frame) => frame.t)).toEqual(['other', 'deliveries']);
    expect(frames[1]?.t === 'deliveries' && frames[1].deliveries.map((d) => d.message.preview)).toEqual([
      '1',
      '2',
    ]);
  });
  test('a delivery costs what the gateway says, and is refused without that', () => {
    const [frame] = parseFrames('{"t":"msg","ch":1,"n":1,"p":0,"o":1,"ts":1,"size":4711,"data":1}');
    expect(frame?.t === 'deliveries' && frame.deliveries[0]?.bytes).toBe(4711);
    expect(() => parseFrames('{"t":"msg","ch":1,"n":1,"p":0,"o":1,"ts":1,"data":1}')).toThrow(SyntaxError);
  });
  test('binary bodies are previewed as hex with their size', () => {
    const page = readPage(
      '{"messages":[{"partition":0,"offset":1,"ts":2,"headers":{},"data_base64":"AP/+QQ=="}],"next":2,"up_to_date":true}',
    );
    expect(page.messages[0]).toMatchObject({ preview: '00 ff fe 41', size: 4 });
    expect(page).toMatchObject({ next: 2, upToDate: true });
  });
  test('what is text is previewed as such, whatever its publisher called it', () => {
    const preview = (bytes: Uint8Array) => {
      const base64 = btoa(String.fromCharCode(...bytes));
      const page = `{"messages":[{"partition":0,"offset":1,"ts":2,"headers":{},"content_type":"application/x-www-form-urlencoded","data_base64":"${base64}"}],"next":2,"up_to_date":true}`;
      return readPage(page).messages[0];
    };
    const text = (value: string) => preview(new TextEncoder().encode(value));
    expect(text('{"total":10.50}')).toMatchObject({ preview: '{"total":10.50}', size: 15 });
    expect(text('é\tb\n')).toMatchObject({ preview: 'é\tb\n', size: 5 });
    // Cut within a character, which is left out.
    expect(text(`${'x'.repeat(320)}é`)?.preview).toMatch(/^x{320}$/);
    expect(text('')).toMatchObject({ preview: '', size: 0 });
    expect(preview(new Uint8Array([0x1f, 0x8b, 8]))?.preview).toBe('1f 8b 08');
    expect(preview(new Uint8Array([0x61, 0xff]))?.preview).toBe('61 ff');
    expect(preview(new Uint8Array([0x61, 0xc3]))?.preview).toBe('61 c3');
    expect(preview(new Uint8Array([0x61, 0]))?.preview).toBe('61 00');
  });
  test('headers that are no text are shown in the Base64 that they come in', () => {
    const page = readPage(
      '{"messages":[{"partition":0,"offset":1,"ts":2,"headers":{"a":"b"},"headers_base64":{"c":"6Q=="},"data":1}],"next":2,"up_to_date":true}',
    );
    expect(page.messages[0]?.headers).toEqual([
      ['a', 'b'],
      ['c', '6Q=='],
    ]);
  });
  test('text is shown as text', () => {
    const page = readPage(
      '{"messages":[{"partition":0,"offset":1,"ts":2,"headers":{},"content_type":"text/plain","data":"<b>é"}],"next":2,"up_to_date":false}',
    );
    expect(page.messages[0]).toMatchObject({ preview: '<b>é', size: 5 });
    const of = (type: string) =>
      readPage(
        `{"messages":[{"partition":0,"offset":1,"ts":2,"headers":{},"content_type":"${type}","data":"hi"}],"next":2,"up_to_date":false}`,
      ).messages[0]?.preview;
    expect(of('application/x-www-form-urlencoded')).toBe('hi');
    expect(of('application/problem+json; a=b')).toBe('"hi"');
  });
});

/** A gateway played by the test. */
function played(partitions = 1, more: Partial<Target> = {}) {
  const sockets: (Socket & { sent: Record<string, unknown>[]; closed: boolean })[] = [];
  const timers: { ms: number; callback: () => void }[] = [];
  const rows: Row[] = [];
  let status: Status | null = null;
  const target: Target = {
    ns: 'default',
    topic: 't',
    from: 'latest',
    partitions,
    known: [],
    only: null,
    ...more,
  };
  const session = new TailSession(
    target,
    {
      rows: (more) => rows.push(...more),
      status: (next) => {
        status = next;
      },
    },
    {
      connect: () => {
        const socket = {
          onopen: null,
          onmessage: null,
          onclose: null,
          sent: [] as Record<string, unknown>[],
          closed: false,
          send: (text: string) => void socket.sent.push(JSON.parse(text)),
          close: () => {
            socket.closed = true;
          },
        };
        sockets.push(socket);
        return socket;
      },
      after: (ms, callback) => {
        const timer = { ms, callback };
        timers.push(timer);
        return () => void timers.splice(timers.indexOf(timer) >>> 0, 1);
      },
      random: () => 0,
    },
  );
  session.start();
  const socket = () => sockets.at(-1) as (typeof sockets)[number];
  return {
    session,
    sockets,
    socket,
    timers,
    rows,
    status: () => status as unknown as Status,
    say: (...frames: object[]) =>
      socket().onmessage?.({ data: frames.map((frame) => JSON.stringify(frame)).join('\n') }),
    open: () => {
      socket().onopen?.();
      socket().onmessage?.({ data: '{"t":"welcome","sid":"s","hb_ms":20000}' });
      socket().onmessage?.({ data: '{"t":"subscribed","ch":1,"inc":1}' });
    },
    msg: (o: number, p = 0, ts = 10_000) => ({ t: 'msg', ch: 1, n: o, p, o, ts, size: 70, data: o }),
  };
}

describe('session', () => {
  test('greets, subscribes with its window, then is live', () => {
    const gateway = played();
    gateway.open();
    expect(gateway.socket().sent).toEqual([
      { t: 'hello', v: 1, client: 'console/0.1', batch: true, resume: null },
      { t: 'sub', ch: 1, ns: 'default', topic: 't', min_level: 'quorum', from: 'latest', limit: WINDOW },
    ]);
    expect(gateway.status().phase).toBe('live');
  });

  test('grants nothing while nothing is taken', () => {
    const gateway = played();
    gateway.open();
    for (let o = 0; o < WINDOW.msgs; o += 1) gateway.say(gateway.msg(o));
    expect(gateway.status().credit.left.msgs).toBe(0);
    expect(gateway.socket().sent).toHaveLength(2);
    gateway.session.took({ msgs: 500, bytes: 0 });
    expect(gateway.socket().sent.at(-1)).toEqual({ t: 'limit', ch: 1, msgs: 1500, bytes: WINDOW.bytes });
    expect(gateway.status().credit.left.msgs).toBe(500);
  });

  test('resumes behind the last message, drops repeats and marks what is missing', () => {
    const gateway = played();
    gateway.open();
    gateway.say(gateway.msg(5), gateway.msg(6));
    gateway.socket().onclose?.({ code: 1006, reason: '' });
    expect(gateway.status()).toMatchObject({ phase: 'waiting', why: 'the connection broke' });
    gateway.timers.at(-1)?.callback();
    gateway.open();
    expect(gateway.socket().sent[1]).toMatchObject({ t: 'sub', from: '7' });
    gateway.say(gateway.msg(6), gateway.msg(7), gateway.msg(10));
    expect(
      gateway.rows.map((row) => {
        if (row.kind === 'turn') return row.closed;
        return row.kind === 'gap' ? `gap ${row.from}-${row.to}` : row.offset;
      }),
    ).toEqual([5, 6, 7, 'gap 8-10', 10]);
  });

  test('a topic that was made again is read from its beginning, and said to be so', () => {
    const gateway = played();
    gateway.socket().onopen?.();
    gateway.say({ t: 'welcome', resume: 'rt_1', hb_ms: 20_000 });
    gateway.say({ t: 'subscribed', ch: 1, inc: 1, start: 5, tail: 5 });
    gateway.say(gateway.msg(5), gateway.msg(6));
    gateway.socket().onclose?.({ code: 1006, reason: '' });
    gateway.timers.at(-1)?.callback();
    gateway.socket().onopen?.();
    expect(gateway.socket().sent[0]).toMatchObject({ channels: [{ ch: 1, inc: 1, seen: [{ p: 0, o: 6 }] }] });
    gateway.say({ t: 'welcome', resume: 'rt_2', hb_ms: 20_000 });
    gateway.say({ t: 'subscribed', ch: 1, inc: 2, start: 0, tail: 2 });
    gateway.say(gateway.msg(0), gateway.msg(1));
    expect(gateway.rows.map((row) => (row.kind === 'gap' ? row.why : row.kind))).toEqual([
      'message',
      'message',
      'recreated',
      'message',
      'message',
    ]);
  });

  test('offsets that compaction left empty are no loss; what lies before the start of a subscription is', () => {
    const gateway = played(2, {
      known: [
        [0, 3],
        [1, 7],
      ],
    });
    gateway.socket().onopen?.();
    gateway.say({ t: 'welcome', resume: null, hb_ms: 20_000 });
    const parts = [
      { p: 0, start: 3, tail: 9 },
      { p: 1, start: 20, tail: 20 },
    ];
    gateway.say({ t: 'subscribed', ch: 1, inc: 1, parts });
    gateway.say(gateway.msg(5, 0), gateway.msg(8, 0), gateway.msg(22, 1));
    expect(gateway.rows.map((row) => (row.kind === 'gap' ? `gap ${row.from}-${row.to}` : row.kind))).toEqual([
      'message',
      'message',
      'gap 7-20',
      'message',
    ]);
  });

  test('several partitions go on each where it was, also those that had nothing yet', () => {
    const gateway = played(3);
    gateway.socket().onopen?.();
    gateway.say({ t: 'welcome', resume: 'rt_1', hb_ms: 20_000 });
    const parts = [
      { p: 0, start: 3, tail: 3 },
      { p: 1, start: 8, tail: 8 },
      { p: 2, start: 0, tail: 0 },
    ];
    gateway.say({ t: 'subscribed', ch: 1, inc: 1, parts });
    gateway.say(gateway.msg(3, 0));
    gateway.socket().onclose?.({ code: 4000, reason: 'drain' });
    gateway.timers.at(-1)?.callback();
    gateway.open();
    expect(gateway.socket().sent[0]).toMatchObject({
      t: 'hello',
      resume: 'rt_1',
      channels: [
        {
          ch: 1,
          inc: 1,
          seen: [
            { p: 0, o: 3 },
            { p: 1, o: 7 },
          ],
        },
      ],
    });
    expect(gateway.socket().sent[1]).toMatchObject({ t: 'sub', from: 'earliest' });
    gateway.say(gateway.msg(8, 1), gateway.msg(0, 2), gateway.msg(4, 0));
    expect(gateway.rows.map((row) => row.kind)).toEqual(['message', 'message', 'message', 'message']);
  });

  test('says once that the topic is closed, when all partitions have said so, and that it is open again', () => {
    const gateway = played(2);
    gateway.open();
    const said = () => gateway.rows.map((row) => (row.kind === 'turn' ? row.closed : row.kind));
    const end = (p: number, closed?: true) => ({ t: 'caught_up', ch: 1, p, end: 4, closed });
    gateway.say(end(0), end(1, true));
    expect(gateway.status().closed).toBe(false);
    gateway.say(end(0, true));
    expect(gateway.status().closed).toBe(true);
    expect(said()).toEqual([true]);
    // Another connection says it again.
    gateway.socket().onclose?.({ code: 1006, reason: '' });
    gateway.timers.at(-1)?.callback();
    gateway.open();
    gateway.say(end(1, true), end(0, true));
    expect(said()).toEqual([true]);
    gateway.say(end(1), end(0), gateway.msg(4, 1));
    expect(gateway.status().closed).toBe(false);
    expect(said()).toEqual([true, false, 'message']);
    gateway.say(end(1, true), end(0, true));
    expect(gateway.rows.at(-1)).toEqual({ kind: 'turn', number: 3, closed: true });
  });

  test('one partition alone says it for itself', () => {
    const gateway = played(3, { only: 2 });
    gateway.open();
    gateway.say({ t: 'caught_up', ch: 1, p: 2, end: 0, closed: true });
    expect(gateway.status().closed).toBe(true);
  });

  test('a resume that the gateway does not accept is tried without its token', () => {
    const gateway = played(2);
    gateway.socket().onopen?.();
    gateway.say({ t: 'welcome', resume: 'rt_1', hb_ms: 20_000 });
    gateway.say({ t: 'subscribed', ch: 1, inc: 1 }, gateway.msg(3, 0));
    gateway.socket().onclose?.({ code: 1006, reason: '' });
    gateway.timers.at(-1)?.callback();
    gateway.socket().onopen?.();
    gateway.say({ t: 'err', problem: { code: 'invalid_cursor', detail: 'none of this', retryable: false } });
    gateway.socket().onclose?.({ code: 4001, reason: 'resume-expired' });
    expect(gateway.status().phase).toBe('waiting');
    gateway.timers.at(-1)?.callback();
    gateway.open();
    expect(gateway.socket().sent[0]).toEqual({
      t: 'hello',
      v: 1,
      client: 'console/0.1',
      batch: true,
      resume: null,
    });
    expect(gateway.socket().sent[1]).toMatchObject({ t: 'sub', from: 'latest' });
    gateway.say(gateway.msg(6, 0));
    expect(gateway.rows.map((row) => row.kind)).toEqual(['message', 'gap', 'message']);
  });

  test('one partition of several is followed alone, behind what is shown', () => {
    const gateway = played(3, { only: 2, known: [[2, 40]], from: '40' });
    gateway.open();
    expect(gateway.socket().sent[1]).toMatchObject({ t: 'sub', p: 2, from: '40' });
    gateway.say(gateway.msg(42, 2));
    expect(gateway.rows.map((row) => row.kind)).toEqual(['gap', 'message']);
    gateway.socket().onclose?.({ code: 1006, reason: '' });
    gateway.timers.at(-1)?.callback();
    gateway.open();
    expect(gateway.socket().sent[1]).toMatchObject({ p: 2, from: '43' });
  });

  test('what still waits to be taken narrows the credit of the next subscription', () => {
    const gateway = played();
    gateway.open();
    for (let o = 0; o < WINDOW.msgs; o += 1) gateway.say(gateway.msg(o));
    for (let loss = 0; loss < 3; loss += 1) {
      gateway.socket().onclose?.({ code: 1006, reason: '' });
      gateway.timers.at(-1)?.callback();
      gateway.open();
      expect(gateway.socket().sent[1]).toMatchObject({
        limit: { msgs: 0, bytes: WINDOW.bytes - 70 * WINDOW.msgs },
      });
    }
    gateway.session.took({ msgs: 600, bytes: 600 * 70 });
    expect(gateway.socket().sent.at(-1)).toMatchObject({ t: 'limit', ch: 1, msgs: 600 });
    expect(gateway.status().credit.left.msgs).toBe(600);
  });

  test('what was taken between two subscriptions is told once the second is live', () => {
    const gateway = played();
    gateway.open();
    for (let o = 0; o < WINDOW.msgs; o += 1) gateway.say(gateway.msg(o));
    gateway.socket().onclose?.({ code: 1006, reason: '' });
    gateway.timers.at(-1)?.callback();
    gateway.socket().onopen?.();
    gateway.say({ t: 'welcome', resume: null, hb_ms: 20_000 });
    gateway.session.took({ msgs: 1000, bytes: 70_000 });
    expect(gateway.socket().sent).toHaveLength(2);
    gateway.say({ t: 'subscribed', ch: 1, inc: 1 });
    expect(gateway.socket().sent[2]).toEqual({ t: 'limit', ch: 1, ...WINDOW });
  });

  test('counts connections that came back, and tells attempts apart from them', () => {
    const gateway = played();
    gateway.open();
    const counts = () => [gateway.status().reconnects, gateway.status().failures];
    for (let loss = 1; loss <= 3; loss += 1) {
      gateway.socket().onclose?.({ code: 1006, reason: '' });
      expect(counts()).toEqual([0, loss]);
      gateway.timers.at(-1)?.callback();
    }
    gateway.open();
    expect(counts()).toEqual([1, 0]);
  });

  test('a terminal code ends it with the problem named', () => {
    const gateway = played();
    gateway.open();
    gateway.say({ t: 'err', problem: { code: 'topic_not_found', detail: 'no topic t', retryable: false } });
    gateway.socket().onclose?.({ code: 4505, reason: 'not found' });
    expect(gateway.status()).toMatchObject({ phase: 'ended', why: 'no topic t' });
    expect(gateway.sockets).toHaveLength(1);
  });

  test('a refused subscription ends it, though the gateway keeps the connection', () => {
    const gateway = played();
    gateway.open();
    const problem = { code: 'incarnation_gone', detail: 'the topic was deleted', retryable: false };
    gateway.say({ t: 'err', ch: 1, problem });
    expect(gateway.status()).toMatchObject({ phase: 'ended', why: 'the topic was deleted' });
    expect(gateway.socket().closed).toBe(true);
    expect(gateway.timers).toHaveLength(0);
  });

  test('a subscription that is refused for now is tried again, each time later', () => {
    const gateway = played();
    const pauses: (number | undefined)[] = [];
    for (let round = 0; round < 3; round += 1) {
      gateway.socket().onopen?.();
      gateway.say({ t: 'welcome', resume: 'rt_1', hb_ms: 20_000 });
      gateway.say({
        t: 'err',
        ch: 1,
        problem: { code: 'no_leader', detail: 'no leader now', retryable: true },
      });
      expect(gateway.status()).toMatchObject({ phase: 'waiting', why: 'no leader now' });
      pauses.push(gateway.timers.at(-1)?.ms);
      gateway.timers.at(-1)?.callback();
    }
    expect(pauses).toEqual([125, 250, 500]);
  });

  test('answers pings and gives up on a silent connection', () => {
    const gateway = played();
    gateway.open();
    gateway.say({ t: 'ping', now: 1 });
    expect(gateway.socket().sent.at(-1)).toEqual({ t: 'pong' });
    expect(gateway.timers.map((timer) => timer.ms)).toEqual([50_000]);
    gateway.timers[0]?.callback();
    expect(gateway.status().phase).toBe('waiting');
    expect(gateway.sockets[0]?.closed).toBe(true);
  });

  test('is silent after stop', () => {
    const gateway = played();
    gateway.open();
    gateway.session.stop();
    expect(gateway.socket().closed).toBe(true);
    expect(gateway.timers).toHaveLength(0);
  });
});
