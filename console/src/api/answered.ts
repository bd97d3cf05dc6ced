import type { QueryClient, QueryKey } from '@tanstack/react-query';

/**
 * Puts what a change answered in the place of what was known. A read that is under way may have been answered before
 * the change: it is dropped, or the page would go back to the older version, and tag, until it reads again.
 */
export async function answered<T>(client: QueryClient, key: QueryKey, now: T): Promise<void> {
  await client.cancelQueries({ queryKey: key, exact: true });
  client.setQueryData<T>(key, now);
}
