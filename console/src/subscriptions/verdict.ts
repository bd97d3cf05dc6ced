import type { Subscription } from '../api/client';
import { counted, grouped } from '../format/number';
import { isStream, ofSeveral } from './config';

export type Tone = 'ok' | 'idle' | 'warn' | 'bad';

/** How a subscription is: a word for the list, a sentence for its page. */
export interface Verdict {
  readonly tone: Tone;
  readonly word: string;
  readonly sentence: string;
}

/** Partitions whose numbers are not known now. */
export const unknownParts = ({ parts }: Subscription) =>
  parts.filter(({ floor }) => floor === null || floor === undefined).length;

/** Is it fine, and if not, what is it? The first that applies. */
export function verdict(subscription: Subscription): Verdict {
  const { config, parts, totals } = subscription;
  const unknown = unknownParts(subscription);
  const waiting = counted(totals.ready, 'message');
  if (subscription.topic_deleted) {
    return {
      tone: 'bad',
      word: 'no topic',
      sentence: `What it consumes, ${config.topics.join(', ')}, was deleted: it can only be deleted as well.`,
    };
  }
  if (unknown > 0) {
    const which = unknown === parts.length ? 'any partition' : counted(unknown, 'partition');
    return {
      tone: 'bad',
      word: 'unknown',
      sentence: `The numbers of ${which} are not known: a shard cannot be reached.`,
    };
  }
  if (config.paused) {
    return {
      tone: 'warn',
      word: 'paused',
      sentence: `Nothing is leased. ${totals.ready === 0 ? 'Nothing waits' : `${waiting} ready`}.`,
    };
  }
  if (isStream(config)) return streamVerdict(subscription);
  const full = fullTopic(subscription);
  if (full) {
    const of = ofSeveral(config) ? ` of ${full.topic}` : '';
    return {
      tone: 'warn',
      word: 'full',
      sentence: `All ${grouped(full.leased)} leases${of} are taken: ${counted(full.ready, 'message')} ready, until something is settled.`,
    };
  }
  if (totals.ready > 0 && totals.leased === 0) {
    return { tone: 'warn', word: 'not taken', sentence: `${waiting} ready, and nobody holds a lease.` };
  }
  if (totals.unsettled === 0) return { tone: 'idle', word: 'empty', sentence: 'Every message is settled.' };
  if (totals.ready === 0 && totals.leased === 0) {
    const behind = totals.blocked > 0 ? `, and ${grouped(totals.blocked)} behind others of their key` : '';
    return {
      tone: 'idle',
      word: 'waiting',
      sentence:
        totals.delayed > 0
          ? `${counted(totals.delayed, 'message')} wait for their time${behind}.`
          : 'Dead letters are on their way to their topic.',
    };
  }
  return {
    tone: 'ok',
    word: 'active',
    sentence: `${counted(totals.leased, 'message')} leased, ${grouped(totals.ready)} ready.`,
  };
}

/** A topic of which as many messages are leased as may be, and more are ready: the limit is of each. */
function fullTopic({ config, parts }: Subscription) {
  const topics = new Map<string, { topic: string; ready: number; leased: number }>();
  for (const { topic, ready, leased } of parts) {
    const sums = topics.get(topic) ?? { topic, ready: 0, leased: 0 };
    topics.set(topic, { topic, ready: sums.ready + (ready ?? 0), leased: sums.leased + (leased ?? 0) });
  }
  const most = config.max_unacked ?? Number.POSITIVE_INFINITY;
  return [...topics.values()].find(({ ready, leased }) => ready > 0 && leased >= most);
}

function streamVerdict({ parts, totals }: Subscription): Verdict {
  const behind = counted(totals.unsettled, 'message');
  // Of a partition nobody has to read where everything is acknowledged.
  const unread = parts.filter(
    ({ reader, ready, leased }) => reader == null && (ready ?? 0) + (leased ?? 0) > 0,
  );
  if (totals.unsettled === 0)
    return { tone: 'idle', word: 'empty', sentence: 'Every message is acknowledged.' };
  if (unread.length > 0) {
    const which = unread.length === parts.length ? 'it' : counted(unread.length, 'partition');
    return { tone: 'warn', word: 'not taken', sentence: `Nobody reads ${which}: ${behind} behind.` };
  }
  return {
    tone: 'ok',
    word: 'active',
    sentence: `${behind} behind, ${grouped(totals.leased)} of them with who reads.`,
  };
}
