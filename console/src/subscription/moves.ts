/** What can be taken back. */
export interface Move {
  readonly undo: string;
  readonly what: 'seek' | 'purge';
}

/** The last seek or purge of each subscription, as long as the page is open. */
const last = new Map<string, Move>();

export const lastMoveOf = (ns: string, name: string) => last.get(`${ns}/${name}`);

/** Keeps what takes back what was just done. */
export function moved(ns: string, name: string, what: Move['what'], undo: string | undefined): void {
  if (undo) last.set(`${ns}/${name}`, { undo, what });
}
