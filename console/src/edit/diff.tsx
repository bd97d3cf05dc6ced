import type { Change } from './changes';

const shown = (value: unknown) =>
  value === null ? 'not set' : Array.isArray(value) ? `[${value.join(', ')}]` : String(value);

/** What differs, each value before and after. */
export function Diff({ list }: { list: readonly Change[] }) {
  if (list.length === 0) return null;
  return (
    <ul className="diff">
      {list.map(({ field, before, after }) => (
        <li key={field}>
          <code>{field}</code>
          <del>{shown(before)}</del>
          <ins>{shown(after)}</ins>
        </li>
      ))}
    </ul>
  );
}
