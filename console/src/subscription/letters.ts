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
  readonly reason: string;
  readonly attempts: string;
  readonly key: string | null;
  readonly preview: string;
}

/** Those among `messages` that this subscription gave up, in their order. */
export function deadLetters(messages: readonly Message[], subscription: string): DeadLetter[] {
  return messages.flatMap((message) => {
    const headers = new Map(message.headers.map(([name, value]) => [name.toLowerCase(), value]));
    const told = (name: string) => headers.get(`weir-dead-${name}`) ?? '';
    if (told('subscription') !== subscription) return [];
    return {
      id: idOf(message),
      ts: message.ts,
      topic: told('topic'),
      origin: `${told('partition')}:${told('offset')}`,
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
