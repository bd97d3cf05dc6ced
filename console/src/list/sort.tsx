import { useMemo, useRef } from 'react';

/** Which column a list is in the order of. */
export interface Sort<K extends string> {
  readonly key: K | 'name';
  readonly descending: boolean;
}

/** Columns of numbers, and the number of a row. */
export type Numbers<T, K extends string> = Record<K, (row: T) => number>;

/** The order that an address names: `-ready` is by `ready`, the largest first. */
export function sortOf<K extends string>(text: string | undefined, numbers: Numbers<never, K>): Sort<K> {
  const key = text?.replace(/^-/, '') ?? 'name';
  return {
    key: Object.hasOwn(numbers, key) ? (key as K) : 'name',
    descending: text?.startsWith('-') ?? false,
  };
}

/** A click turns the order round; a number starts with its largest. */
export function nextSort<K extends string>(now: Sort<K>, key: K | 'name'): string | undefined {
  const descending = now.key === key ? !now.descending : key !== 'name';
  return key === 'name' && !descending ? undefined : `${descending ? '-' : ''}${key}`;
}

/** `rows` in the order of `names`; `null` if one of them has no place in it. */
export function inPlace<T extends { readonly name: string }>(
  rows: readonly T[],
  names: readonly string[],
): T[] | null {
  const byName = new Map(rows.map((row) => [row.name, row]));
  const placed = names.flatMap((name) => byName.get(name) ?? []);
  return placed.length === rows.length ? placed : null;
}

/** Rows in the order; by name they are as the server sent them. */
export function useSorted<T extends { readonly name: string }, K extends string>(
  rows: T[],
  { key, descending }: Sort<K>,
  numbers: Numbers<T, K>,
  loading: boolean,
): T[] {
  // Numbers move all the time: rows keep their place until the order is asked for again or rows are added.
  const order = useRef<{ id: string; names: string[] }>({ id: '', names: [] });
  return useMemo(() => {
    if (key === 'name') return descending ? [...rows].reverse() : rows;
    const value = numbers[key];
    const id = `${key}${descending}${rows.length}${loading}`;
    const placed = order.current.id === id ? inPlace(rows, order.current.names) : null;
    if (!placed) {
      const sorted = [...rows].sort(
        (a, b) => (value(a) - value(b)) * (descending ? -1 : 1) || (a.name < b.name ? -1 : 1),
      );
      order.current = { id, names: sorted.map(({ name }) => name) };
      return sorted;
    }
    return placed;
  }, [rows, key, descending, numbers, loading]);
}

/** What a column that can be sorted by has beside its cells. */
export function sortable<K extends string>(
  sort: Sort<K>,
  onSort: (key: K | 'name') => void,
  key: K | 'name',
  label: string,
) {
  const on = sort.key === key;
  return {
    head: (
      <button type="button" className="sort" data-on={on || undefined} onClick={() => onSort(key)}>
        {label}
        <span aria-hidden="true">{on ? (sort.descending ? ' ↓' : ' ↑') : ''}</span>
      </button>
    ),
    sorted: on ? (sort.descending ? ('descending' as const) : ('ascending' as const)) : undefined,
  };
}
