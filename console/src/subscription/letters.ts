import { counted, grouped } from '../format/number';
import { idOf, type Message } from '../tail/message';

/** A message of the dead letter topic, and where it came from. */
export interface DeadLetter {
  /** Partition and offset of the letter. */
  readonly id: string;
  /** When it became one, milliseconds since the epoch. */
  readonly ts: number;
  readonly topic: string;
  /** Partition and offset of the message that died. */
  readonly origin: string;
  /** The id that the subscription knows it by: of several topics with the topic before. */
  readonly message: string;
  readonly reason: string;
  readonly attempts: string;
  readonly key: string | null;
  readonly preview: string;
}

/** Those among `messages` that this subscription gave up, in their order. `several`: it consumes more than one topic. */
export function deadLetters(
  messages: readonly Message[],
  subscription: string,
  several = false,
): DeadLetter[] {
  return messages.flatMap((message) => {
    const headers = new Map(message.headers.map(([name, value]) => [name.toLowerCase(), value]));
    const told = (name: string) => headers.get(`weir-dead-${name}`) ?? '';
    if (told('subscription') !== subscription) return [];
    const origin = `${told('partition')}:${told('offset')}`;
    return {
      id: idOf(message),
      ts: message.ts,
      topic: told('topic'),
      origin,
      message: several ? `${told('topic')}:${origin}` : origin,
      reason: told('reason') || 'no reason given',
      attempts: told('attempts'),
      key: message.key,
      preview: message.preview,
    };
  });
}

/** How many died of what, the most frequent first. */
export function groups(letters: readonly DeadLetter[]): { reason: string; count: number }[] {
  const counts = new Map<string, number>();
  for (const { reason } of letters) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  return [...counts]
    .map(([reason, count]) => ({ reason, count }))
    .sort((a, b) => b.count - a.count || (a.reason < b.reason ? -1 : 1));
}

/** What of the dead letter topic was searched. */
export interface Searched {
  /** In words, before `of` the topic. */
  readonly what: string;
  /** There is more that was not searched, or may be. */
  readonly rest: boolean;
}

interface Read {
  /** Messages that were read. */
  readonly read: number;
  /** Messages that there are; `null`: not known. */
  readonly of: number | null;
  /** Of each partition at most, where there are many. */
  readonly each: number | null;
  readonly partitions: number;
}

/** Says what was searched: never more than was read. */
export function searched({ read, of, each, partitions }: Read): Searched {
  if (of !== null && read >= of) return { what: `all ${counted(of, 'message')}`, rest: false };
  const total = of === null ? counted(read, 'message') : `${grouped(read)} of ${counted(of, 'message')}`;
  if (each === null) return { what: `the newest ${total}`, rest: true };
  const few = each > 1 ? ` ${grouped(each)}` : '';
  return { what: `the newest${few} of each of ${grouped(partitions)} partitions, ${total},`, rest: true };
}
