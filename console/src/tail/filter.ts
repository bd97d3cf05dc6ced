import type { Row } from './session';

/** What of `rows` is shown, and how many messages are not. */
export interface Sifted {
  readonly rows: readonly Row[];
  readonly hidden: number;
}

/**
 * Keeps the messages that hold `text` in their key, a header or the preview of their body, in any case of letters.
 * What is no message stays: it says that something is missing, or that nothing more comes, whatever is looked for.
 */
export function sift(rows: Iterable<Row>, text: string): Sifted {
  const wanted = text.trim().toLowerCase();
  const kept: Row[] = [];
  let hidden = 0;
  for (const row of rows) {
    if (row.kind !== 'message' || wanted === '' || textOf(row).includes(wanted)) kept.push(row);
    else hidden += 1;
  }
  return { rows: kept, hidden };
}

/** Parts stand on lines of their own, so that nothing matches across them. */
const textOf = ({ key, headers, preview }: Extract<Row, { kind: 'message' }>) =>
  [key ?? '', ...headers.map(([name, value]) => `${name}: ${value}`), preview].join('\n').toLowerCase();
