import { Link } from '@tanstack/react-router';
import type { Subscription } from '../api/client';
import { grouped } from '../format/number';
import { age } from '../format/time';
import { useNow } from '../ui/now';

const HEADS = [
  'Topic',
  'Partition',
  'Shard',
  'Settled below',
  'Settled above',
  'Next offset',
  'Ready',
  'Leased',
  'Delayed',
  'Dead',
  'Oldest',
];

/** What it holds of each partition. */
export function Parts({ subscription }: { subscription: Subscription }) {
  const now = useNow(1000);
  const { ns, parts } = subscription;
  return (
    <section aria-labelledby="parts">
      <h2 id="parts">Partitions</h2>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard */}
      <section className="table-scroll" aria-label="Partitions" tabIndex={0}>
        <table className="table">
          <thead>
            <tr>
              {HEADS.map((head) => (
                <th key={head} scope="col" className={head === 'Topic' ? undefined : 'numeric'}>
                  {head}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
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
                {[
                  part.floor,
                  part.settled_above_floor,
                  part.end,
                  part.ready,
                  part.leased,
                  part.delayed,
                  part.dead,
                ].map((value, index) => (
                  <td key={HEADS[index + 3]} className="numeric">
                    {known(value)}
                  </td>
                ))}
                <td className="numeric">{part.oldest_ms == null ? '–' : age(part.oldest_ms, now)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </section>
  );
}

const known = (value: number | null | undefined) =>
  value == null ? <span title="The shard cannot be reached now">unknown</span> : grouped(value);
