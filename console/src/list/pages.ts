import { keepPreviousData, useInfiniteQuery, useQueries } from '@tanstack/react-query';
import { useCallback, useEffect, useMemo, useRef, useState } from 'react';

/** Rows per request. Two of these cover a screen, and only those are asked for again to keep numbers live. */
export const PAGE_ROWS = 200;
const LIVE_MS = 2000;

/** A page of a list in name order. */
export interface Page<T> {
  readonly items: T[];
  readonly next?: string | null;
}

export interface Listing<T> {
  /** Where the pages are kept: what is listed, and what it was narrowed to. */
  readonly key: readonly string[];
  readonly read: (cursor: string | undefined, signal: AbortSignal) => Promise<Page<T>>;
}

/** The list as far as it was read, page by page in name order. An empty list is asked for again until it is not. */
function usePages<T>({ key, read }: Listing<T>) {
  return useInfiniteQuery({
    queryKey: [...key],
    queryFn: ({ pageParam, signal }) => read(pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    placeholderData: keepPreviousData,
    staleTime: 10_000,
    refetchInterval: ({ state }) =>
      state.status === 'error' || state.data?.pages[0]?.items.length === 0 ? LIVE_MS : false,
  });
}

/** Keeps the pages numbered `visible` up to date while the page is seen; answers them by number. */
function useLivePages<T>(
  { key, read }: Listing<T>,
  pages: readonly Page<T>[],
  visible: readonly number[],
): ReadonlyMap<number, Page<T>> {
  return useQueries({
    queries: visible.map((index) => {
      const cursor = index === 0 ? undefined : (pages[index - 1]?.next ?? undefined);
      return {
        queryKey: [`${key[0]}-live`, ...key.slice(1), cursor ?? ''],
        queryFn: ({ signal }: { signal: AbortSignal }) => read(cursor, signal),
        initialData: pages[index],
        initialDataUpdatedAt: Date.now(),
        staleTime: LIVE_MS,
        // Rows that are sorted by number lie on many pages: more of them are not more requests a second.
        refetchInterval: LIVE_MS * Math.max(1, visible.length / 2),
        enabled: index === 0 || cursor !== undefined,
      };
    }),
    combine: (results) =>
      new Map(
        results.flatMap(({ data }, place) => {
          const index = visible[place];
          return data && index !== undefined ? [[index, data] as const] : [];
        }),
      ),
  });
}

/** A page as it is now: what came shows up, what went is gone. What was pushed out of it stays as it was. */
export function renewed<T extends { readonly name: string }>(page: Page<T>, now: Page<T> | undefined): T[] {
  if (!now) return page.items;
  const last = now.next ? now.items.at(-1)?.name : undefined;
  return last === undefined ? now.items : [...now.items, ...page.items.filter(({ name }) => name > last)];
}

const NO_PAGES: never[] = [];

/** The rows read so far, those on the screen as they are now, and how to get at more. */
export function useList<T extends { readonly name: string }>(listing: Listing<T>) {
  const list = usePages(listing);
  const pages: readonly Page<T>[] = list.data?.pages ?? NO_PAGES;
  const [visible, setVisible] = useState<readonly number[]>([0]);
  const known = visible.filter((index) => index < pages.length);
  const live = useLivePages(listing, pages, known);
  const { rows, pageOf } = useMemo(() => {
    const byName = new Map<string, T>();
    const pageOf = new Map<string, number>();
    for (const [index, page] of pages.entries())
      for (const row of renewed(page, live.get(index))) {
        byName.set(row.name, row);
        pageOf.set(row.name, index);
      }
    return { rows: [...byName.values()], pageOf };
  }, [pages, live]);
  const { hasNextPage, isFetchingNextPage, fetchNextPage, refetch } = list;
  // The last page grew beyond itself: there is another one now.
  const grown = !hasNextPage && pages.length > 0 && Boolean(live.get(pages.length - 1)?.next);
  useEffect(() => {
    if (grown) void refetch();
  }, [grown, refetch]);
  const see = useCallback((pages: Iterable<number>) => {
    const next = [...new Set(pages)].sort((a, b) => a - b);
    setVisible((before) => (before.join() === next.join() ? before : next));
  }, []);
  /** The rows on the screen, where their order is any but the server's. */
  const onShown = useCallback(
    (shown: readonly T[]) => see(shown.map(({ name }) => pageOf.get(name) ?? 0)),
    [see, pageOf],
  );
  const onRange = useCallback(
    (first: number, last: number) => {
      see([Math.floor(first / PAGE_ROWS), Math.floor(last / PAGE_ROWS)]);
      if (last >= rows.length - 60 && hasNextPage && !isFetchingNextPage) void fetchNextPage();
    },
    [see, rows.length, hasNextPage, isFetchingNextPage, fetchNextPage],
  );
  return { list, rows, onRange, onShown, loadAll: useLoadAll(fetchNextPage), complete: !hasNextPage };
}

type FetchNextPage = ReturnType<typeof usePages>['fetchNextPage'];

/** Reads page after page until the end. */
function useLoadAll(fetchNextPage: FetchNextPage) {
  const running = useRef<Promise<void> | null>(null);
  return useCallback(() => {
    running.current ??= (async () => {
      for (;;) {
        const { hasNextPage, error } = await fetchNextPage({ cancelRefetch: false });
        if (!hasNextPage || error) return;
      }
    })().finally(() => {
      running.current = null;
    });
    return running.current;
  }, [fetchNextPage]);
}

/** Reads the whole list when its order is any but the server's. After a failure it goes on once the list is read again. */
export function useWhole(wanted: boolean, complete: boolean, failed: boolean, loadAll: () => Promise<void>) {
  useEffect(() => {
    if (wanted && !complete && !failed) void loadAll();
  }, [wanted, complete, failed, loadAll]);
}

/** True from the first time it was: a dialog that closes must stay mounted to give the focus back. */
export function useSeen(now: boolean): boolean {
  const seen = useRef(false);
  seen.current ||= now;
  return seen.current;
}
