import type { Explained } from '../api/client';
import { counted, grouped } from '../format/number';
import { lasting } from '../format/time';

type Reason = Explained['reasons'][number];

/** What keeps a message from being leased, and what can be done about it. */
const REASONS: Record<Reason, string> = {
  paused: 'The subscription is paused: resume it.',
  window_full: 'As many messages are leased as the configuration allows at once.',
  no_consumer: 'Nobody has pulled for a minute: is a worker running?',
  comes_again_full: 'Too many messages wait to come again; they go first.',
  look_ahead_full:
    'Too many messages wait behind keys that are held, or for their turn: settle some of them first.',
  filtered: 'The filter does not match it: it is settled undelivered.',
  expired: 'Its time to live is over: it is settled undelivered.',
  scheduled: 'Its publisher wants it later.',
  in_line: 'Others go before it.',
  seeking: 'A seek is on its way.',
  compacted: 'Compaction dropped it: its key has a newer message, or was deleted. It is settled undelivered.',
  exhausted:
    'It has had all its deliveries: it waits for room for dead letters, or for the end of its last delivery.',
};

export const reasonText = (reason: string): string => REASONS[reason as Reason] ?? reason;

const held = ({ holder, attempts, lease_expires_in_ms: left = 0 }: Explained) =>
  `${holder ?? 'Somebody without a name'} has it, for ${lasting(left)} more; attempt ${grouped(attempts)}.`;

const SENTENCES: Record<string, (explained: Explained) => string> = {
  ready: ({ ahead }) => `It could be leased; ${counted(ahead, 'unsettled message')} before it.`,
  leased: held,
  delayed: ({ delayed_ms, reasons }) =>
    reasons.includes('exhausted')
      ? `It is given up in ${lasting(delayed_ms ?? 0)} at the earliest.`
      : `It comes again in ${lasting(delayed_ms ?? 0)}.`,
  blocked: ({ blocked_by }) =>
    `Another message of its key is not settled${blocked_by ? `: ${blocked_by}` : ''}.`,
  settling: () => 'What was decided of it is on its way to the disk.',
  filtered: () => 'It is for nobody here, and on its way to be settled.',
  settled: () => 'It is settled: it will not be delivered again, unless somebody seeks.',
  // How often it was tried only its dead letter says.
  dead: () => 'It was given up; redriving delivers it again.',
  trimmed: ({ start }) => `Retention has removed it; the oldest message is ${grouped(start)}.`,
  absent: ({ end }) =>
    end === 0
      ? 'There is no such message yet; its partition has had none.'
      : `There is no such message yet; the newest is below ${grouped(end)}.`,
};

/** Where it stands, in a sentence. */
export const standing = (explained: Explained): string =>
  SENTENCES[explained.state]?.(explained) ?? `It is ${explained.state}.`;

/** `0:76531`, as a message's id is written. */
export const idError = (text: string): string | null =>
  /^([\w.~-]+:)?\d{1,5}:\d{1,16}$/.test(text)
    ? null
    : 'A partition, a colon and an offset: 0:76531; of several topics with the topic before: orders:0:76531';
