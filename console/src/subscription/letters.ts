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
