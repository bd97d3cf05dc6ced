import { isValidElement, type ReactElement, type ReactNode } from 'react';

/** The text of a column's head, with a class if it has one; or a cell with a key, where text does not do. */
type Head = string | { readonly text: string; readonly className: 'numeric' | 'wide' } | ReactElement;

/** The head of a column of numbers. */
export const numeric = (text: string): Head => ({ text, className: 'numeric' });

interface TableProps {
  readonly label: string;
  readonly heads: readonly Head[];
  /** Rows of the body. */
  readonly children: ReactNode;
}

/** A table that scrolls sideways by itself where it is wider than the page. */
export function ScrollTable({ label, heads, children }: TableProps) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard
    <section className="table-scroll" aria-label={label} tabIndex={0}>
      <table className="table">
        <thead>
          <tr>{heads.map(headCell)}</tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </section>
  );
}

function headCell(head: Head) {
  if (isValidElement(head)) return head;
  const { text, className } = typeof head === 'string' ? { text: head, className: undefined } : head;
  return (
    <th key={text} scope="col" className={className}>
      {text}
    </th>
  );
}
