import { useCallback } from 'react';
import { type Listing, useList, useWhole } from './pages';
import { type Numbers, sortOf, useSorted } from './sort';

/** A list in the order that the address names. */
export function useSortedList<T extends { readonly name: string }, K extends string>(
  listing: Listing<T>,
  order: string | undefined,
  numbers: Numbers<T, K>,
) {
  const sort = sortOf(order, numbers);
  const { rows, onRange, onShown, ...read } = useList(listing);
  const sorted = useSorted(rows, sort, numbers, read.list.isFetchingNextPage);
  // Any order but the server's needs every row; so does an end that was asked for.
  const whole = sort.key !== 'name' || sort.descending;
  useWhole(whole, read.complete, read.list.isError, read.loadAll);
  const onSortedRange = useCallback(
    (first: number, last: number) => onShown(sorted.slice(first, last + 1)),
    [onShown, sorted],
  );
  return { ...read, rows: sorted, sort, onRange: whole ? onSortedRange : onRange };
}
