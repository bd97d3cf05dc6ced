import type { TrimWish } from '../api/topics';

export type Kind = 'time' | 'offset' | 'end';

/** What was typed. */
interface Typed {
  readonly ms: number | null;
  readonly offset: string;
  readonly partition: string;
}

export interface Wanted {
  /** `null`: it cannot be asked for. */
  readonly wish: TrimWish | null;
  readonly errors: Readonly<Partial<Record<'time' | 'offset' | 'partition', string>>>;
}

/** What is to be trimmed of a topic with so many partitions. */
export function wishOf(kind: Kind, { ms, offset, partition }: Typed, partitions: number): Wanted {
  const errors: Partial<Record<'time' | 'offset' | 'partition', string>> = {};
  if (kind === 'time' && ms === null) errors.time = 'Like 2026-01-31 14:05:00';
  if (kind === 'offset' && !isNumber(offset)) errors.offset = 'An offset is a number.';
  const named = partition.trim() !== '';
  if (named && !(isNumber(partition) && Number(partition) < partitions)) {
    errors.partition = `A number from 0 to ${partitions - 1}.`;
  }
  if (kind === 'offset' && !named && partitions > 1) errors.partition = 'Say which.';
  if (Object.keys(errors).length > 0) return { wish: null, errors };
  const before = kind === 'time' ? `ts:${ms}` : kind === 'offset' ? offset.trim() : 'end';
  return { wish: { before, ...(named && { partition: Number(partition) }) }, errors };
}

const isNumber = (text: string) => /^\d{1,16}$/.test(text.trim());
