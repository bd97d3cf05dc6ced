import { Link, useParams } from '@tanstack/react-router';
import type { Topic } from '../api/client';
import { totals, useTopic } from '../api/topics';
import { useSettings } from '../app/settings';
import { bytes, counted, grouped, rate } from '../format/number';
import { durationText, sizeText } from '../format/quantity';
import { ago, instant, zoneName } from '../format/time';
import { useNow } from '../ui/now';
import { Sparkline } from '../ui/sparkline';
import { numeric, ScrollTable } from '../ui/table';
import { Tile, useSeries } from '../ui/tile';
import { DamagedObjects } from './damaged';
import { OffsetAxis, StorageTiles } from './storage';

export function OverviewTab() {
  const { ns, topic: name } = useParams({ from: '/ns/$ns/topics/$topic' });
  const query = useTopic(ns, name);
  const rates = query.data?.topic.rates;
  const published = useSeries(rates?.publish_records_per_second, query.dataUpdatedAt);
  const delivered = useSeries(rates?.deliver_records_per_second, query.dataUpdatedAt);
  if (!query.data) return null;
  const { topic } = query.data;
  const { records, bytes: size } = totals(topic);
  const isCompacted = topic.config.compaction === 'key';
  return (
    <div className="tab-body">
      <DamagedObjects topic={topic} />
      <div className="tiles">
        <Tile
          label="Messages"
          value={records === null ? 'unknown' : grouped(records)}
          note={`in ${counted(topic.partitions.length, 'partition')}${isCompacted ? ', dropped ones included' : ''}`}
        />
        <Tile
          label="Size"
          value={size === null ? 'unknown' : bytes(size)}
          note={size === null ? undefined : `${grouped(size)} B encoded`}
        />
        <Tile
          label="Publish"
          value={`${rate(topic.rates.publish_records_per_second)} /s`}
          note={`${bytes(Math.round(topic.rates.publish_bytes_per_second))}/s`}
        >
          <Sparkline values={published} label="Publish rate over the last two minutes" />
        </Tile>
        <Tile label="Deliver" value={`${rate(topic.rates.deliver_records_per_second)} /s`} note="to readers">
          <Sparkline values={delivered} label="Deliver rate over the last two minutes" />
        </Tile>
      </div>
      <StorageTiles topic={topic} />
      <Partitions ns={ns} topic={topic} />
      <Facts topic={topic} updatedAt={query.dataUpdatedAt} />
    </div>
  );
}

function Partitions({ ns, topic }: { ns: string; topic: Topic }) {
  const most = Math.max(1, ...topic.partitions.map(({ start, end }) => (end ?? 0) - (start ?? 0)));
  return (
    // Without a name: the table in it is a region of about that name already.
    <section>
      <h2>Partitions and offsets</h2>
      <ScrollTable
        label="Partitions"
        heads={[
          ...['Partition', 'Shard', 'Oldest offset', 'Next offset', 'Messages'].map(numeric),
          { text: topic.storage ? 'Offsets' : 'Share', className: 'wide' },
          numeric('Size'),
        ]}
      >
        {topic.partitions.map(({ partition, shard, start, end, bytes: size, storage }) => (
          <tr key={partition}>
            <th scope="row" className="numeric">
              <Link
                to="/ns/$ns/topics/$topic/messages"
                params={{ ns, topic: topic.name }}
                search={{ partition }}
              >
                {partition}
              </Link>
            </th>
            <td className="numeric">{shard}</td>
            <td className="numeric">{known(start)}</td>
            <td className="numeric">{known(end)}</td>
            <td className="numeric">{start == null || end == null ? known(null) : grouped(end - start)}</td>
            <td className="wide">
              {storage && start != null && end != null ? (
                <OffsetAxis start={start} end={end} most={most} storage={storage} />
              ) : (
                <span className="share">
                  <span style={{ width: `${(((end ?? 0) - (start ?? 0)) / most) * 100}%` }} />
                </span>
              )}
            </td>
            <td className="numeric">{size == null ? known(null) : bytes(size)}</td>
          </tr>
        ))}
      </ScrollTable>
    </section>
  );
}

const known = (value: number | null | undefined) =>
  value == null ? (
    <span title="The shard of this partition cannot be reached now">unknown</span>
  ) : (
    grouped(value)
  );

function Facts({ topic, updatedAt }: { topic: Topic; updatedAt: number }) {
  const { zone } = useSettings();
  const now = useNow(1000);
  const { retention, compaction, default_confirm, deliver_from } = topic.config;
  const limits = [
    retention.age_ms != null && `for ${durationText(retention.age_ms)}`,
    retention.bytes != null && `up to ${sizeText(retention.bytes)} per partition`,
    retention.records != null && `up to ${grouped(retention.records)} messages per partition`,
    retention.until_settled && 'until every subscription has settled them',
  ].filter(Boolean);
  return (
    <dl className="facts">
      <dt>Confirm</dt>
      <dd>
        at <code>{default_confirm}</code>, readers accept <code>{deliver_from}</code>
      </dd>
      <dt>Kept</dt>
      <dd>
        {limits.length > 0 ? limits.join(', ') : 'without limit'}
        {compaction === 'key' && '; of each key only the newest'}
      </dd>
      <dt>Created</dt>
      <dd title={ago(topic.created_ms, now)}>
        {instant(topic.created_ms, zone)} {zoneName(zone)}
      </dd>
      <dt>Incarnation</dt>
      <dd className="mono">{topic.incarnation}</dd>
      <dt>Read</dt>
      <dd>{ago(updatedAt, now)}</dd>
    </dl>
  );
}
