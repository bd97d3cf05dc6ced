import { elements, members } from '../json/slices';
import { isJson, type Message, readMessage } from '../tail/message';

/** A message that this page leased. */
export interface Held {
  readonly message: Message;
  /** Its topic, of a subscription to several. */
  readonly topic?: string;
  /** The body as it stands in the answer, digit for digit; `null` if it is not text. */
  readonly body: string | null;
  readonly lease: string;
  readonly attempt: number;
  /** As text: it may be larger than a number can hold exactly. */
  readonly fence: string;
  /** When the lease ends by this page's clock, milliseconds since the epoch. */
  readonly until: number;
}

/** The messages of an answer to `:pull` that came at `now`. */
export function readPulled(text: string, now: number): Held[] {
  const list = members(text).get('messages');
  if (!list) throw new SyntaxError('an answer to :pull has no messages');
  return elements(text, list.start).map(({ start }) => {
    const found = members(text, start);
    const raw = (name: string) => {
      const place = found.get(name);
      return place && text.slice(place.start, place.end);
    };
    const message = readMessage(text, start);
    const data = raw('data');
    const isText = !isJson(message.contentType) && data?.startsWith('"');
    const topic = raw('topic');
    return {
      message,
      ...(topic !== undefined && { topic: JSON.parse(topic) as string }),
      body: data === undefined ? null : isText ? (JSON.parse(data) as string) : data,
      lease: JSON.parse(raw('lease') ?? '""') as string,
      attempt: Number(raw('attempt')),
      fence: raw('fence') ?? '',
      until: now + Number(raw('lease_expires_in_ms')),
    };
  });
}
