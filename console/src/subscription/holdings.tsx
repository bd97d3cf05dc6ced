import type { Subscription } from '../api/client';
import { grouped } from '../format/number';
import { ofSeveral } from '../subscriptions/config';

/** What the messages that are not settled wait for: shares of one strip, and the numbers. */
export function Holdings({ subscription }: { subscription: Subscription }) {
  const { totals, config } = subscription;
  const kinds = [
    { id: 'ready', label: 'ready', count: totals.ready, about: 'for whoever asks next' },
    {
      id: 'leased',
      label: 'leased',
      count: totals.leased,
      about: `of ${grouped(config.max_unacked ?? 0)} at once${ofSeveral(config) ? ', of each topic' : ''}`,
    },
    { id: 'delayed', label: 'delayed', count: totals.delayed, about: 'until their time comes' },
    ...(config.order === 'key'
      ? [{ id: 'blocked', label: 'blocked', count: totals.blocked, about: 'behind others of their key' }]
      : []),
    {
      id: 'dying',
      label: 'dead, on their way',
      count: totals.dead_pending,
      about: config.dlq ? `to ${config.dlq}` : 'out',
    },
  ];
  return (
    <section aria-labelledby="holdings">
      <h2 id="holdings">What waits</h2>
      <div className="strip" aria-hidden="true">
        {kinds.map(
          ({ id, count }) => count > 0 && <span key={id} data-holding={id} style={{ flexGrow: count }} />,
        )}
      </div>
      <ul className="legend">
        {kinds.map(({ id, label, count, about }) => (
          <li key={id}>
            <span className="swatch" data-holding={id} />
            <strong>{grouped(count)}</strong> {label} <span className="faint">{about}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
