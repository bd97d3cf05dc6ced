import type { Topic } from '../api/client';
import { useSettings } from '../app/settings';
import { counted, grouped } from '../format/number';
import { ago, instant, type Zone, zoneName } from '../format/time';
import { CopyButton } from '../ui/copy';
import { useNow } from '../ui/now';
import { type DamagedObject, objectsOf } from './places';

/** Told one by one; the API has the others. */
const SHOWN = 5;

/** Objects that messages of the topic could not be read from, if there are any. */
export function DamagedObjects({ topic }: { topic: Topic }) {
  const { zone } = useSettings();
  const now = useNow(1000);
  const damaged = topic.storage?.damaged ?? [];
  return damaged.length > 0 ? <DamagedNotice damaged={damaged} zone={zone} now={now} /> : null;
}

interface NoticeProps {
  readonly damaged: readonly DamagedObject[];
  readonly zone: Zone;
  readonly now: number;
}

/** Which messages cannot be read, from which object, and what to do. Only the first line is called out: counts and ages change. */
export function DamagedNotice({ damaged, zone, now }: NoticeProps) {
  const more = damaged.length - SHOWN;
  return (
    <section className="problem" aria-label="Damaged objects">
      <strong role="alert">{counted(objectsOf(damaged), 'object')} in the object store cannot be read</strong>
      <p>
        Reads of the messages below fail as <code>corrupt</code>. All others are read and published as before.
      </p>
      <ul className="damaged">
        {damaged.slice(0, SHOWN).map((one) => (
          <Damaged key={`${one.partition} ${one.object}`} one={one} zone={zone} now={now} />
        ))}
      </ul>
      {more > 0 && (
        <p>
          {counted(more, 'more place', 'more places')}: <code>storage.damaged</code> in the topic’s
          description has them.
        </p>
      )}
      <p>
        Bring the object back under its name, from the bucket’s versions or a replica: the next read finds it,
        and this notice goes. If it cannot be had, its messages are lost: read on behind them, or trim the
        partition to there, which removes everything before too. See “Damaged objects” in docs/operations.md.
      </p>
    </section>
  );
}

function Damaged({ one, zone, now }: { one: DamagedObject; zone: Zone; now: number }) {
  const { object, partition, from, to, times, last_ms } = one;
  const why = one.why.replace(`object ${object}`, 'the object');
  return (
    <li>
      <b>
        Partition {partition}, {counted(to - from, 'message')}
      </b>{' '}
      from offset {grouped(from)} up to, not including, {grouped(to)}: {why}
      <br />
      <code>{object}</code> <CopyButton text={object} label="Copy the object’s name" iconOnly />
      <br />
      <span className="faint">
        {counted(times, 'read')} failed, the last {ago(last_ms, now)}, at{' '}
        {`${instant(last_ms, zone)} ${zoneName(zone)}`}
      </span>
    </li>
  );
}
