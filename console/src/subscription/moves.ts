/** What can be taken back. */
export interface Move {
  readonly undo: string;
  readonly what: 'seek' | 'purge';
}

/** The last seek or purge of each life of a subscription, as long as the page is open. */
const last = new Map<number, Move>();

export const lastMoveOf = ({ id }: { readonly id: number }) => last.get(id);

/** Keeps what takes back what was just done. */
export function moved({ id }: { readonly id: number }, what: Move['what'], undo: string | undefined): void {
  if (undo) last.set(id, { undo, what });
}
