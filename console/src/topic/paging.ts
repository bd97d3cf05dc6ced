/**
 * The offset where the page before one begins that was asked for at `from`; `null` if nothing lies before. `messages` are
 * newest first, `start` is the partition's oldest offset, `most` how many a page has at most.
 *
 * Two things make a step other than `most`: a page of large messages has fewer, so that as many are gone back; and where
 * compaction left the page's first offsets empty, the next step is twice what was empty, or thousands of empty pages
 * would have to be walked through.
 */
export function olderFrom(
  from: string,
  messages: readonly { readonly offset: number }[],
  start: number,
  most: number,
): number | null {
  const asked = /^\d+$/.test(from) ? Number(from) : null;
  const oldest = messages.at(-1)?.offset ?? asked;
  if (oldest === null || from === 'earliest' || Math.min(asked ?? oldest, oldest) <= start) return null;
  const empty = asked === null ? 0 : Math.max(0, oldest - asked);
  const step = messages.length === 0 ? most : Math.min(most, messages.length);
  return Math.max(start, oldest - Math.max(step, 2 * empty));
}
