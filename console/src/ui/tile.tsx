import { type ReactNode, useEffect, useState } from 'react';

interface TileProps {
  readonly label: string;
  readonly value: string;
  readonly note?: ReactNode;
  readonly tone?: 'bad' | undefined;
  readonly children?: ReactNode;
}

/** A number with its name, and what stands behind it. */
export function Tile({ label, value, note, tone, children }: TileProps) {
  return (
    <div className="tile">
      <span className="tile-label">{label}</span>
      <span className="tile-value" data-tone={tone}>
        {value}
      </span>
      {note && <span className="tile-note">{note}</span>}
      {children}
    </div>
  );
}

/** Samples kept for the shape beside a number: two minutes, one every two seconds. */
const SAMPLES = 60;

/** The last values, oldest first; one for every time `at` that they were read. */
export function useSeries(value: number | undefined, at: number): readonly number[] {
  const [series, setSeries] = useState<{ at: number; values: readonly number[] }>({ at: 0, values: [] });
  useEffect(() => {
    if (value === undefined) return;
    setSeries((before) =>
      before.at === at ? before : { at, values: [...before.values.slice(1 - SAMPLES), value] },
    );
  }, [at, value]);
  return series.values;
}
