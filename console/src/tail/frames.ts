import { elements, members } from '../json/slices';
import { deliveredMessage, type Message } from './message';

/** A message and what it costs of the credit, in bytes. */
export interface Delivery {
  readonly message: Message;
  readonly bytes: number;
}

/** What a gateway says on a channel of `weir.v1.json` that only follows a topic. */
export type Frame =
  | { readonly t: 'deliveries'; readonly deliveries: readonly Delivery[] }
  | {
      readonly t: 'gap';
      readonly partition: number;
      readonly from: number;
      readonly to: number;
      readonly why: string;
    }
  /** `ch` is `null` where the whole connection is meant: a close follows. Of a channel it ends that alone. */
  | { readonly t: 'problem'; readonly ch: number | null; readonly problem: Record<string, unknown> }
  | { readonly t: 'welcome'; readonly hbMs: number; readonly resume: string | null }
  /** `life` is that of the topic; per partition the offset that comes first. */
  | {
      readonly t: 'subscribed';
      readonly life: number;
      readonly starts: readonly (readonly [number | null, number])[];
    }
  /** Everything of the partition has come; `closed`: nothing follows unless the topic is opened. */
  | { readonly t: 'caught-up'; readonly partition: number; readonly closed: boolean }
  | { readonly t: 'other'; readonly name: string };

/** The gateway says what a record costs: its encoded length, which JSON text does not show. */
function deliveryAt(text: string, start: number): Delivery {
  const size = members(text, start).get('size');
  if (!size) throw new SyntaxError('a delivery without its size');
  return { message: deliveredMessage(text, start), bytes: Number(text.slice(size.start, size.end)) };
}

/** Reads one WebSocket text message: frames, one per line. Throws `SyntaxError` on what is not such a frame. */
export function parseFrames(text: string): Frame[] {
  return text
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map(parseFrame);
}

function parseFrame(line: string): Frame {
  const found = members(line);
  const value = (name: string): unknown => {
    const slice = found.get(name);
    return slice ? JSON.parse(line.slice(slice.start, slice.end)) : undefined;
  };
  const name = value('t');
  switch (name) {
    case 'msg':
      return { t: 'deliveries', deliveries: [deliveryAt(line, 0)] };
    case 'msgs': {
      const list = found.get('msgs');
      const places = list ? elements(line, list.start) : [];
      return { t: 'deliveries', deliveries: places.map(({ start }) => deliveryAt(line, start)) };
    }
    case 'gap':
      return {
        t: 'gap',
        partition: Number(value('p') ?? 0),
        from: Number(value('from')),
        to: Number(value('to')),
        why: String(value('why') ?? 'unknown'),
      };
    case 'caught_up':
      return { t: 'caught-up', partition: Number(value('p') ?? 0), closed: value('closed') === true };
    case 'welcome':
      return {
        t: 'welcome',
        hbMs: Number(value('hb_ms') ?? 20_000),
        resume: (value('resume') ?? null) as string | null,
      };
    case 'subscribed': {
      // A subscription to one partition does not repeat which.
      const start = value('start') as number | undefined;
      const parts = (value('parts') ?? []) as { p: number; start: number }[];
      return {
        t: 'subscribed',
        life: Number(value('inc') ?? 0),
        starts: start === undefined ? parts.map((part) => [part.p, part.start]) : [[null, start]],
      };
    }
    case 'err':
      return {
        t: 'problem',
        ch: (value('ch') ?? null) as number | null,
        problem: (value('problem') ?? JSON.parse(line)) as Record<string, unknown>,
      };
    default:
      return { t: 'other', name: String(name) };
  }
}
