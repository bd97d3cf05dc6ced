import { Link } from '@tanstack/react-router';
import type { Subscription } from '../api/client';
import { grouped } from '../format/number';
import { age } from '../format/time';
import { isStream } from '../subscriptions/config';
import { useNow } from '../ui/now';
import { numeric, ScrollTable } from '../ui/table';

type Part = Subscription['parts'][number];
type Column = readonly [head: string, value: (part: Part) => number | null | undefined];

const QUEUE: readonly Column[] = [
  ['Settled below', (part) => part.floor],
  ['Settled above', (part) => part.settled_above_floor],
  ['Next offset', (part) => part.end],
  ['Ready', (part) => part.ready],
  ['Leased', (part) => part.leased],
  ['Delayed', (part) => part.delayed],
  ['Dead', (part) => part.dead],
];

const STREAM: readonly Column[] = [
  ['Cursor', (part) => part.floor],
  ['Next offset', (part) => part.end],
  ['Lag', ({ ready, leased }) => (ready == null || leased == null ? null : ready + leased)],
  ['With the reader', (part) => part.leased],
];

/** What it holds of each partition. */
export function Parts({ subscription }: { subscription: Subscription }) {
  const now = useNow(1000);
  const { ns, parts, config } = subscription;
  const columns = isStream(config) ? STREAM : QUEUE;
  const heads = [
    'Topic',
    ...['Partition', 'Shard', ...columns.map(([head]) => head), 'Oldest'].map(numeric),
    ...(isStream(config) ? ['Reader'] : []),
  ];
  return (
    // Without a name: the table in it is a region of that name already.
    <section>
      <h2>Partitions</h2>
      <ScrollTable label="Partitions" heads={heads}>
        {parts.map((part) => (
          <tr key={`${part.topic}:${part.partition}`}>
            <td className="mono">{part.topic}</td>
            <th scope="row" className="numeric">
              <Link
                to="/ns/$ns/topics/$topic/messages"
                params={{ ns, topic: part.topic }}
                search={{
                  partition: part.partition,
                  ...(part.floor != null && { from: String(part.floor) }),
                }}
                title="The messages from the first one on that is not settled"
              >
                {part.partition}
              </Link>
            </th>
            <td className="numeric">{part.shard}</td>
            {columns.map(([head, value]) => (
              <td key={head} className="numeric">
                {known(value(part))}
              </td>
            ))}
            <td className="numeric">{part.oldest_ms == null ? '–' : age(part.oldest_ms, now)}</td>
            {isStream(config) && <td className="mono">{part.reader ?? 'nobody'}</td>}
          </tr>
        ))}
      </ScrollTable>
    </section>
  );
}

const known = (value: number | null | undefined) =>
  value == null ? <span title="The shard cannot be reached now">unknown</span> : grouped(value);
