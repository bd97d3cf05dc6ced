import { useVirtualizer } from '@tanstack/react-virtual';
import {
  type KeyboardEvent,
  type MouseEvent,
  type ReactNode,
  type Ref,
  type RefObject,
  useEffect,
  useId,
  useRef,
  useState,
} from 'react';

export interface Column<T> {
  readonly id: string;
  readonly head: ReactNode;
  /** Grid track, e.g. `minmax(12rem, 3fr)`. */
  readonly width: string;
  readonly cell: (row: T) => ReactNode;
  readonly numeric?: boolean;
  readonly sorted?: 'ascending' | 'descending' | undefined;
}

interface GridProps<T> {
  readonly label: string;
  readonly columns: readonly Column<T>[];
  readonly count: number;
  readonly row: (index: number) => T | undefined;
  readonly rowKey: (row: T) => string;
  readonly onOpen: (row: T) => void;
  /** Key of the row that is open beside the list. */
  readonly openKey?: string | undefined;
  /** Called with the range of rows on the screen whenever it changes. */
  readonly onRange?: (first: number, last: number) => void;
  /** `End` was pressed: read the rest first, then answer. */
  readonly onEnd?: () => Promise<unknown>;
  readonly onScrolled?: (top: number) => void;
  readonly gridRef?: Ref<HTMLDivElement>;
  readonly rowClass?: (row: T) => string | undefined;
  readonly empty?: ReactNode;
}

const ROW = 32;

/** Of the link that a row opens as well: the keyboard reaches the row, and a click on the link is not one on the row. */
export const rowLink = {
  className: 'row-link mono',
  tabIndex: -1,
  onClick: (event: MouseEvent) => event.stopPropagation(),
} as const;

/**
 * A table of any length: only the rows on the screen exist, which a <table> cannot do.
 * Arrows, Home, End and Page keys move, Enter opens.
 */
export function Grid<T>(props: GridProps<T>) {
  const { columns, count, row, onOpen, onRange } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const id = useId();
  const virtual = useVirtualizer({
    count,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW,
    overscan: 8,
    scrollPaddingStart: ROW,
  });
  const items = virtual.getVirtualItems();
  const first = items[0]?.index ?? 0;
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => onRange?.(first, last), [first, last, onRange]);
  const { current, mark, onKeyDown } = useActiveRow(props, scroller, (index) =>
    virtual.scrollToIndex(index, { align: 'auto' }),
  );
  return (
    <div
      className="grid"
      role="grid"
      aria-label={props.label}
      aria-rowcount={count + 1}
      aria-colcount={columns.length}
      aria-activedescendant={
        count > 0 && current >= first && current <= last ? `${id}-${current}` : undefined
      }
      tabIndex={0}
      onKeyDown={onKeyDown}
      onScroll={(event) => props.onScrolled?.(event.currentTarget.scrollTop)}
      ref={(element) => {
        scroller.current = element;
        if (typeof props.gridRef === 'function') props.gridRef(element);
        else if (props.gridRef) props.gridRef.current = element;
      }}
      style={{ '--tracks': columns.map(({ width }) => width).join(' ') } as React.CSSProperties}
    >
      <Head columns={columns} />
      {count === 0 && props.empty ? (
        <Empty>{props.empty}</Empty>
      ) : (
        <div role="rowgroup" className="grid-rows" style={{ height: virtual.getTotalSize() }}>
          {items.map(({ index, start }) => {
            const value = row(index);
            if (value === undefined) return null;
            const press = () => {
              mark(index);
              onOpen(value);
            };
            const place = { id: `${id}-${index}`, index, start, active: index === current };
            return (
              <GridRow key={props.rowKey(value)} grid={props} value={value} place={place} onPress={press} />
            );
          })}
        </div>
      )}
    </div>
  );
}

interface Marked {
  readonly index: number;
  /** Key of the row; `null` until one was chosen: then it is whichever comes first. */
  readonly key: string | null;
}

/** Where the marked row is now: rows may have come before it or gone. Of one that is gone it is the place that is left. */
function placeOf<T>({ index, key }: Marked, { count, row, rowKey }: GridProps<T>): number {
  const isIt = (at: number) => {
    const value = at >= 0 && at < count ? row(at) : undefined;
    return value !== undefined && rowKey(value) === key;
  };
  for (let away = 0; key !== null && (index - away >= 0 || index + away < count); away += 1) {
    if (isIt(index + away)) return index + away;
    if (isIt(index - away)) return index - away;
  }
  return Math.max(0, Math.min(count - 1, index));
}

/** The row that the keys move, and what they do. */
function useActiveRow<T>(
  props: GridProps<T>,
  scroller: RefObject<HTMLElement | null>,
  scrollTo: (index: number) => void,
) {
  const { count, row, rowKey, onOpen, onEnd } = props;
  const [marked, setMarked] = useState<Marked>({ index: 0, key: null });
  const current = placeOf(marked, props);
  const mark = (index: number) => {
    const value = row(index);
    setMarked({ index, key: value === undefined ? null : rowKey(value) });
  };
  const move = (to: number) => {
    const next = Math.max(0, Math.min(count - 1, to));
    mark(next);
    scrollTo(next);
  };
  const pageRows = Math.max(1, Math.floor((scroller.current?.clientHeight ?? ROW) / ROW) - 2);
  const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: pageRows, PageUp: -pageRows };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.target !== event.currentTarget || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = steps[event.key];
    if (step !== undefined) move(current + step);
    else if (event.key === 'Home') move(0);
    else if (event.key === 'End') void (onEnd?.() ?? Promise.resolve()).then(() => setToEnd((n) => n + 1));
    else if (event.key === 'Enter') {
      const value = row(current);
      if (value) onOpen(value);
    } else return;
    event.preventDefault();
  };
  // The rows that `End` had to read exist only after the next render.
  const [toEnd, setToEnd] = useState(0);
  // biome-ignore lint/correctness/useExhaustiveDependencies: runs once per press of End
  useEffect(() => {
    if (toEnd > 0) move(count - 1);
  }, [toEnd]);
  return { current, mark, onKeyDown };
}

function Head<T>({ columns }: { columns: readonly Column<T>[] }) {
  return (
    <div role="rowgroup" className="grid-head">
      <div role="row" className="grid-row head" aria-rowindex={1} tabIndex={-1}>
        {columns.map((column) => (
          <div
            key={column.id}
            role="columnheader"
            className={column.numeric ? 'cell numeric' : 'cell'}
            aria-sort={column.sorted}
            tabIndex={-1}
          >
            {column.head}
          </div>
        ))}
      </div>
    </div>
  );
}

function Empty({ children }: { children: ReactNode }) {
  return (
    <div role="rowgroup">
      <div role="row" tabIndex={-1}>
        <div role="gridcell" className="grid-empty" tabIndex={-1}>
          {children}
        </div>
      </div>
    </div>
  );
}

interface GridRowProps<T> {
  readonly grid: GridProps<T>;
  readonly value: T;
  readonly place: {
    readonly id: string;
    readonly index: number;
    /** Pixels from the first row. */
    readonly start: number;
    /** It is the one that the keys act upon. */
    readonly active: boolean;
  };
  readonly onPress: () => void;
}

function GridRow<T>({ grid, value, place, onPress }: GridRowProps<T>) {
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: keys are handled by the grid, which has the focus
    <div
      id={place.id}
      role="row"
      aria-rowindex={place.index + 2}
      aria-selected={grid.openKey === grid.rowKey(value)}
      className={`grid-row ${grid.rowClass?.(value) ?? ''}`}
      data-active={place.active || undefined}
      tabIndex={-1}
      style={{ transform: `translateY(${place.start}px)` }}
      onClick={onPress}
    >
      {grid.columns.map((column) => (
        <div
          key={column.id}
          role="gridcell"
          className={column.numeric ? 'cell numeric' : 'cell'}
          tabIndex={-1}
        >
          {column.cell(value)}
        </div>
      ))}
    </div>
  );
}
