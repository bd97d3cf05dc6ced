import { type Amount, Credit, type CreditView } from './credit';
import { type Delivery, parseFrames } from './frames';
import type { Message } from './message';

/** The part of `WebSocket` that a session uses, so that tests can play the gateway. */
export interface Socket {
  onopen: (() => void) | null;
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: ((event: { code: number; reason: string }) => void) | null;
  send(text: string): void;
  close(code?: number): void;
}

export interface Gap {
  readonly kind: 'gap';
  readonly partition: number;
  /** Offsets `[from, to)` were not shown. */
  readonly from: number;
  readonly to: number;
  readonly why: string;
}

/** The topic was closed, or opened again, while it was followed. */
export interface Turn {
  readonly kind: 'turn';
  /** Which of the session's turns. */
  readonly number: number;
  readonly closed: boolean;
}

export type Row = Message | Gap | Turn;

export interface Target {
  readonly ns: string;
  readonly topic: string;
  /** Position in the grammar of `from`, for the first connection. */
  readonly from: string;
  readonly partitions: number;
  /** Per partition, the offset after what is shown already: what lies between is marked as missing. */
  readonly known: readonly (readonly [number, number])[];
  /** Show this partition alone; `null`: all. */
  readonly only: number | null;
}

export type Phase = 'connecting' | 'live' | 'waiting' | 'ended';

export interface Status {
  readonly phase: Phase;
  readonly credit: CreditView;
  /** Why it waits or ended, for people; `null` while all is well. */
  readonly why: string | null;
  readonly problem: Record<string, unknown> | null;
  /** How often it came back after a loss, since the session began. */
  readonly reconnects: number;
  /** Losses and failed attempts since it was last live. */
  readonly failures: number;
  /** Everything has come, and nothing follows unless the topic is opened again. */
  readonly closed: boolean;
}

export interface SessionEvents {
  rows(rows: readonly Row[], cost: Amount): void;
  status(status: Status): void;
}

export interface Surroundings {
  connect(): Socket;
  /** Calls back after `ms`; the answer cancels it. */
  after(ms: number, callback: () => void): () => void;
  /** In `[0, 1)`. */
  random(): number;
}

export const WINDOW: Amount = { msgs: 1000, bytes: 4 * 1024 * 1024 };
const CHANNEL = 1;
/** Close codes: any that asks for a reconnect, and that which says the resume token is void. */
const RETRY = 4000;
const RESUME_EXPIRED = 4001;
const BACKOFF_MS = [250, 500, 1000, 2000, 2500];

/**
 * Follows a topic over `weir.v1.json` until it is stopped. After a lost connection it reconnects, resumes behind
 * the last message seen, drops what it has seen already, and reports offsets that are missing as a gap.
 * Credit is raised by `took` alone.
 */
export class TailSession {
  private socket: Socket | null = null;
  private credit = new Credit(WINDOW);
  /** The limit that the gateway was last told. */
  private told: Amount = WINDOW;
  private phase: Phase = 'connecting';
  private why: string | null = null;
  private problem: Record<string, unknown> | null = null;
  private reconnects = 0;
  private failures = 0;
  private cancelTimer: () => void = () => {};
  private silenceMs = 45_000;
  private cancelSilence: () => void = () => {};
  /** Per partition: offset after the last message seen, or that of the first to come. */
  private readonly nextOffset: Map<number, number>;
  /** Per partition: where this connection's subscription began. Offsets it passes over behind that are empty (compaction). */
  private readonly begins = new Map<number, number>();
  /** Token of the latest `welcome`; `null` before, and once the gateway did not accept it. */
  private token: string | null = null;
  private hasSubscribed = false;
  /** The topic's life, which offsets belong to. */
  private life: number | null = null;
  /** Partitions that said, on this connection, that nothing follows. */
  private readonly ended = new Set<number>();
  private closed = false;
  private turns = 0;

  constructor(
    private readonly target: Target,
    private readonly events: SessionEvents,
    private readonly around: Surroundings,
  ) {
    this.nextOffset = new Map(target.known);
  }

  start(): void {
    this.connect();
  }

  /** Ends the session. No event follows. */
  stop(): void {
    this.phase = 'ended';
    this.cancelTimer();
    this.dropSocket();
  }

  /** The reader has taken rows that cost this much, of whichever subscription. */
  took(cost: Amount): void {
    const limit = this.credit.take(cost);
    if (limit && this.phase === 'live') this.grant();
    if (limit) this.report();
  }

  private connect(): void {
    this.dropSocket();
    const socket = this.around.connect();
    this.socket = socket;
    this.phase = 'connecting';
    this.problem = null;
    this.report();
    socket.onopen = () => this.greet();
    socket.onmessage = ({ data }) => this.receive(String(data));
    socket.onclose = ({ code, reason }) => this.lost(code, reason);
    this.watchSilence();
  }

  private dropSocket(): void {
    this.cancelSilence();
    const socket = this.socket;
    this.socket = null;
    if (!socket) return;
    socket.onopen = null;
    socket.onmessage = null;
    socket.onclose = null;
    socket.close(1000);
  }

  private watchSilence(): void {
    this.cancelSilence();
    this.cancelSilence = this.around.after(this.silenceMs, () =>
      this.lost(4002, 'nothing was heard from the gateway'),
    );
  }

  private receive(text: string): void {
    this.watchSilence();
    let frames: ReturnType<typeof parseFrames>;
    try {
      frames = parseFrames(text);
    } catch (error) {
      this.end(`The gateway sent something that is not weir.v1.json: ${String(error)}`);
      return;
    }
    const rows: Row[] = [];
    const cost = { msgs: 0, bytes: 0 };
    for (const frame of frames) {
      if (frame.t === 'deliveries') {
        for (const delivery of frame.deliveries) this.deliver(delivery, rows, cost);
      } else if (frame.t === 'gap') {
        rows.push({
          kind: 'gap',
          partition: frame.partition,
          from: frame.from,
          to: frame.to,
          why: frame.why,
        });
        this.nextOffset.set(frame.partition, Math.max(frame.to, this.nextOffset.get(frame.partition) ?? 0));
      } else if (frame.t === 'welcome') {
        this.subscribe(frame.hbMs);
        this.token = frame.resume;
      } else if (frame.t === 'subscribed') this.subscribed(frame.life, frame.starts, rows);
      else if (frame.t === 'caught-up') this.caughtUp(frame.partition, frame.closed, rows);
      else if (frame.t === 'problem') this.refused(frame.ch, frame.problem);
      else this.control(frame.name);
      if (this.socket === null) break;
    }
    if (cost.msgs > 0 || rows.length > 0) this.events.rows(rows, cost);
    this.report();
  }

  /** Each partition says for itself whether its topic is closed; a new connection says it again, which is no news. */
  private caughtUp(partition: number, closed: boolean, rows: Row[]): void {
    if (closed) this.ended.add(partition);
    else this.ended.delete(partition);
    const all = this.single === null ? this.target.partitions : 1;
    const turns = closed ? !this.closed && this.ended.size >= all : this.closed;
    if (!turns) return;
    this.closed = closed;
    this.turns += 1;
    rows.push({ kind: 'turn', number: this.turns, closed });
  }

  private deliver({ message, bytes }: Delivery, rows: Row[], cost: { msgs: number; bytes: number }): void {
    this.credit.receive(bytes);
    cost.msgs += 1;
    cost.bytes += bytes;
    const { partition, offset } = message;
    const expected = this.nextOffset.get(partition);
    if (expected !== undefined && offset < expected) return;
    const missedTo = Math.min(offset, this.begins.get(partition) ?? offset);
    if (expected !== undefined && missedTo > expected) {
      rows.push({ kind: 'gap', partition, from: expected, to: missedTo, why: 'missed' });
    }
    this.nextOffset.set(partition, offset + 1);
    rows.push(message);
  }

  private greet(): void {
    const hello = { t: 'hello', v: 1, client: 'console/0.1', batch: true, resume: this.token };
    if (!this.resumesAll()) this.send({ ...hello, resume: null });
    else {
      const seen = [...this.nextOffset]
        .filter(([p, next]) => next > 0 && (this.single === null || p === this.single))
        .map(([p, next]) => ({ p, o: next - 1 }));
      this.send({ ...hello, channels: [{ ch: CHANNEL, inc: this.life, seen }] });
    }
  }

  private subscribe(hbMs: number): void {
    this.silenceMs = hbMs * 2.5;
    this.credit = this.credit.renewed();
    this.told = this.credit.granted;
    const { ns, topic, only } = this.target;
    const scope = only === null ? { ns, topic } : { ns, topic, p: only };
    // Whatever the topic's tier: what is shown here is never taken back.
    const sub = { t: 'sub', ch: CHANNEL, ...scope, min_level: 'quorum', from: this.resumeFrom() };
    this.send({ ...sub, limit: this.credit.granted });
  }

  /** The only partition that is followed; `null` if there are several. */
  private get single(): number | null {
    return this.target.partitions === 1 ? 0 : this.target.only;
  }

  /** Whether the place in every partition can be named: offsets do not compare across them. */
  private resumesAll(): boolean {
    if (this.token === null || !this.hasSubscribed) return false;
    return this.single !== null
      ? this.nextOffset.has(this.single)
      : this.nextOffset.size === this.target.partitions;
  }

  private resumeFrom(): string {
    if (!this.hasSubscribed) return this.target.from;
    // What `hello` named goes on where it was; the rest had nothing yet, and its first message is wanted.
    if (this.resumesAll()) return 'earliest';
    const next = this.single === null ? undefined : this.nextOffset.get(this.single);
    return next === undefined ? this.target.from : String(next);
  }

  private subscribed(life: number, starts: readonly (readonly [number | null, number])[], rows: Row[]): void {
    // Offsets of another life of the topic say nothing of this one.
    if (this.life !== null && this.life !== life) {
      this.nextOffset.clear();
      rows.push({ kind: 'gap', partition: this.single ?? 0, from: 0, to: 0, why: 'recreated' });
    }
    this.life = life;
    this.begins.clear();
    for (const [named, start] of starts) {
      const partition = named ?? this.single ?? 0;
      this.begins.set(partition, start);
      if (!this.nextOffset.has(partition)) this.nextOffset.set(partition, start);
    }
    this.ended.clear();
    if (this.hasSubscribed) this.reconnects += 1;
    this.hasSubscribed = true;
    this.phase = 'live';
    if (this.credit.granted !== this.told) this.grant();
    this.failures = 0;
    this.why = null;
    this.problem = null;
  }

  private control(name: string): void {
    if (name === 'ping') this.send({ t: 'pong' });
    else if (name === 'goaway' || name === 'moved') this.lost(4000, 'the gateway is going away');
  }

  /** The gateway keeps the connection of a channel it refused, for others: this one has none. */
  private refused(ch: number | null, problem: Record<string, unknown>): void {
    this.problem = problem;
    if (ch !== null) this.lost(RETRY, String(problem.detail ?? problem.title ?? problem.code));
  }

  /** Codes from 4500 on are final; so is a refusal that names a problem which no retry can help. */
  private lost(code: number, reason: string): void {
    this.dropSocket();
    if (this.phase === 'ended') return;
    const hopeless = this.problem?.retryable === false && code !== RESUME_EXPIRED;
    if (code === RESUME_EXPIRED) this.token = null;
    if ((code >= 4500 && code < 5000) || hopeless) {
      this.end(
        String(this.problem?.detail ?? reason) || `The gateway closed the connection with code ${code}.`,
      );
      return;
    }
    const pause = BACKOFF_MS[Math.min(this.failures, BACKOFF_MS.length - 1)] ?? 2500;
    this.failures += 1;
    this.phase = 'waiting';
    this.why = reason || (code === 1006 ? 'the connection broke' : `the gateway closed with code ${code}`);
    this.cancelTimer = this.around.after(pause * (0.5 + this.around.random() / 2), () => this.connect());
    this.report();
  }

  private end(why: string): void {
    this.dropSocket();
    this.phase = 'ended';
    this.why = why;
    this.report();
  }

  private grant(): void {
    this.told = this.credit.granted;
    this.send({ t: 'limit', ch: CHANNEL, ...this.told });
  }

  private send(frame: Record<string, unknown>): void {
    this.socket?.send(JSON.stringify(frame));
  }

  private report(): void {
    this.events.status({
      phase: this.phase,
      credit: this.credit.view(),
      why: this.why,
      problem: this.problem,
      reconnects: this.reconnects,
      failures: this.failures,
      closed: this.closed,
    });
  }
}
