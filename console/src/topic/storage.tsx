import type { Topic } from '../api/client';
import { bytes, grouped, often, rate } from '../format/number';
import { Tile } from '../ui/tile';
import { hitPercent, lagMs, money, type PartitionStorage, PLACES, placed, segments } from './places';

/** Above this a lag is told in warning colour, with words: uploads begin after half a minute. */
const LAG_MS_LONG = 120_000;

/** How far a partition's offsets reach, and where they are: each place has a pattern of its own. */
export function OffsetAxis(props: { start: number; end: number; most: number; storage: PartitionStorage }) {
  const { start, end, most, storage } = props;
  const found = segments(start, end, storage);
  const words = found.map(({ place, from, to, bytes: size }) => {
    const name = PLACES.find((known) => known.place === place)?.name ?? place;
    return `${name} ${grouped(from)} to ${grouped(to - 1)}, ${bytes(size)}`;
  });
  const label = words.length > 0 ? words.join('; ') : 'No messages';
  return (
    <span className="axis" role="img" aria-label={label} title={label}>
      {found.map(({ place, from, to }) => (
        <span key={place} data-place={place} style={{ width: `${((to - from) / most) * 100}%` }} />
      ))}
    </span>
  );
}

/** Where a topic's messages are, how far uploads are behind, and what a day costs. */
export function StorageTiles({ topic }: { topic: Topic }) {
  const sums = placed(topic);
  if (!topic.storage || !sums) return null;
  const { cost_per_day: cost, object_bytes, puts_per_day, gets_per_day } = topic.storage;
  const { blocks_asked_per_day: asked, blocks_cached_per_day: cached, read_bytes_per_day } = topic.storage;
  const { prices } = cost;
  const lag = lagMs(topic);
  return (
    <section aria-labelledby="storage">
      <h2 id="storage">Object store</h2>
      <div className="tiles">
        <Tile
          label="Waits for upload"
          value={`${grouped(Math.round(lag / 1000))} s`}
          tone={lag > LAG_MS_LONG ? 'bad' : undefined}
          note={lag > LAG_MS_LONG ? 'uploads are behind' : 'oldest message that is not uploaded'}
        />
        <Tile
          label="Cost per day, estimated"
          value={`${money(cost.total)} ${prices.currency}`}
          note={`stored ${money(cost.stored)}, writes ${money(cost.puts)}, reads ${money(cost.gets)}`}
        />
        <Tile
          label="Objects"
          value={bytes(object_bytes)}
          note={`${often(puts_per_day, 'write')}, ${often(gets_per_day, 'read')} a day`}
        />
        <Tile
          label="Cold reads from cache"
          value={hitPercent(cached, asked) ?? 'no reads'}
          note={
            hitPercent(cached, asked) === null
              ? 'nothing was read from objects within a day'
              : `${rate(cached)} of ${often(asked, 'block')} a day, ${bytes(Math.round(read_bytes_per_day))} fetched`
          }
        />
      </div>
      <ul className="places">
        {PLACES.map(({ place, name, means }) => (
          <li key={place}>
            <span className="axis-key" data-place={place} aria-hidden="true" />
            <b>{name}</b> {bytes(sums[place])} <span className="faint">{means}</span>
          </li>
        ))}
      </ul>
      <p className="faint">
        At {prices.stored_gib_month} {prices.currency} a GiB and month, {prices.thousand_puts} for a thousand
        writes and {prices.thousand_gets} for a thousand reads: {prices.source}.
      </p>
    </section>
  );
}
