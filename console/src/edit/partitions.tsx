import { grouped } from '../format/number';
import { numeric, ScrollTable } from '../ui/table';

interface Props<Part> {
  readonly parts: readonly Part[];
  /** What a row is of: a partition, with its topic if there are several. */
  readonly name: (part: Part) => string;
  /** Heads of the other columns, and their cells. */
  readonly columns: readonly (readonly [head: string, cell: (part: Part) => number | string])[];
}

/** A partition, with its topic where there are several. */
export const partName = ({ topic, partition }: { topic?: string; partition: number }) =>
  topic ? `${topic} ${partition}` : String(partition);

/** What a preview says of each partition; nothing where there is but one. */
export function PartitionTable<Part>({ parts, name, columns }: Props<Part>) {
  if (parts.length < 2) return null;
  return (
    <ScrollTable
      label="Preview by partition"
      heads={['Partition', ...columns.map(([head]) => head)].map(numeric)}
    >
      {parts.map((part) => (
        <tr key={name(part)}>
          <th scope="row" className="numeric">
            {name(part)}
          </th>
          {columns.map(([head, cell]) => {
            const value = cell(part);
            return (
              <td key={head} className="numeric">
                {typeof value === 'number' ? grouped(value) : value}
              </td>
            );
          })}
        </tr>
      ))}
    </ScrollTable>
  );
}
