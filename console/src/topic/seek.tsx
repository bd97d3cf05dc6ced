import { type FormEvent, useState } from 'react';
import type { Topic } from '../api/client';
import { APART_MAX } from '../api/messages';
import { useSettings } from '../app/settings';
import { grouped } from '../format/number';
import { parseInstant, secondAgo, typedInstant, zoneName } from '../format/time';
import { Choice, Segments } from '../ui/field';

type Kind = 'newest' | 'oldest' | 'offset' | 'time';

interface Position {
  readonly from: string;
  readonly partition: number | undefined;
}

interface SeekBarProps {
  readonly topic: Topic;
  readonly from: string;
  readonly partition: number | undefined;
  readonly disabled: boolean;
  readonly onSeek: (position: Position) => void;
}

function kindOf(from: string): Kind {
  if (from.startsWith('tail:') || from === 'latest') return 'newest';
  if (from === 'earliest') return 'oldest';
  if (from.startsWith('ts:')) return 'time';
  return 'offset';
}

/** Where to look: chosen here, kept in the address. */
export function SeekBar({ topic, from, partition, disabled, onSeek }: SeekBarProps) {
  const { zone } = useSettings();
  const [kind, setKind] = useState<Kind>(() => kindOf(from));
  const [text, setText] = useState(() => textOf(from, zone));
  // Typing is kept until the position changes by itself.
  const at = `${from} ${partition}`;
  const [shownAt, setShownAt] = useState(at);
  if (shownAt !== at) {
    setShownAt(at);
    setKind(kindOf(from));
    setText(textOf(from, zone));
  }
  // What was typed stays the same instant when another zone is chosen.
  const [typedIn, setTypedIn] = useState(zone);
  if (typedIn !== zone) {
    const ms = kind === 'time' ? parseInstant(text, typedIn) : null;
    setTypedIn(zone);
    if (ms !== null) setText(typedInstant(ms, zone));
  }
  const choose = (next: Kind) => {
    setKind(next);
    if (next === 'newest') onSeek({ from: 'tail:50', partition });
    else if (next === 'oldest') onSeek({ from: 'earliest', partition });
    else setText(next === 'time' ? secondAgo(3_600_000, zone) : '');
  };
  return (
    <div className="seek">
      <Segments
        label="Start at"
        value={kind}
        options={[
          { id: 'newest', label: 'Newest', disabled },
          { id: 'oldest', label: 'Oldest', disabled },
          { id: 'offset', label: 'Offset', disabled },
          { id: 'time', label: 'Time', disabled },
        ]}
        onChange={choose}
      />
      {(kind === 'offset' || kind === 'time') && !disabled && (
        <PlaceForm
          key={kind}
          kind={kind}
          text={text}
          onText={setText}
          partition={partition}
          onSeek={onSeek}
        />
      )}
      {topic.config.partitions > 1 && (
        <Partition topic={topic} from={from} partition={partition} onSeek={onSeek} />
      )}
    </div>
  );
}

interface PlaceFormProps extends Pick<SeekBarProps, 'partition' | 'onSeek'> {
  readonly kind: 'offset' | 'time';
  readonly text: string;
  readonly onText: (text: string) => void;
}

/** An offset or a time to be typed. */
function PlaceForm({ kind, text, onText, partition, onSeek }: PlaceFormProps) {
  const { zone } = useSettings();
  const [error, setError] = useState<string | null>(null);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (kind === 'offset') {
      if (/^\d{1,16}$/.test(text.trim())) onSeek({ from: text.trim(), partition: partition ?? 0 });
      else setError('An offset is a number.');
    } else {
      const ms = parseInstant(text, zone);
      if (ms === null) setError('Like 2026-01-31 14:05:00');
      else onSeek({ from: `ts:${ms}`, partition });
    }
  };
  return (
    <form onSubmit={submit} className="seek-form">
      <input
        className="mono"
        aria-label={kind === 'offset' ? 'Offset' : `Time, ${zoneName(zone)}`}
        aria-invalid={error ? true : undefined}
        size={kind === 'offset' ? 12 : 20}
        value={text}
        autoComplete="off"
        onChange={(event) => onText(event.target.value)}
      />
      <button type="submit">Go</button>
      {error && (
        <span className="note bad" role="alert">
          {error}
        </span>
      )}
    </form>
  );
}

/** All partitions or one: chosen from a list, or typed where that would be long. */
function Partition({ topic, from, partition, onSeek }: Omit<SeekBarProps, 'disabled'>) {
  const choose = (next: number | undefined) =>
    onSeek({
      from: next === undefined && kindOf(from) === 'offset' ? 'tail:50' : from,
      partition: next,
    });
  return topic.partitions.length > APART_MAX ? (
    <PartitionForm count={topic.partitions.length} partition={partition} onChoose={choose} />
  ) : (
    <PartitionChoice topic={topic} partition={partition} onChoose={choose} />
  );
}

interface PartitionProps {
  readonly partition: number | undefined;
  readonly onChoose: (partition: number | undefined) => void;
}

function PartitionForm({ count, partition, onChoose }: PartitionProps & { readonly count: number }) {
  const [text, setText] = useState(() => String(partition ?? ''));
  const [shown, setShown] = useState(partition);
  if (shown !== partition) {
    setShown(partition);
    setText(String(partition ?? ''));
  }
  const typed = text.trim();
  const isRight = typed === '' || (/^\d{1,4}$/.test(typed) && Number(typed) < count);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (isRight) onChoose(typed === '' ? undefined : Number(typed));
  };
  return (
    <form onSubmit={submit} className="seek-form">
      <input
        className="mono"
        aria-label="Partition"
        aria-invalid={isRight ? undefined : true}
        inputMode="numeric"
        size={14}
        placeholder="All partitions"
        value={text}
        autoComplete="off"
        onChange={(event) => setText(event.target.value)}
      />
      <button type="submit">Show</button>
      {!isRight && (
        <span className="note bad" role="alert">
          A number from 0 to {grouped(count - 1)}, or nothing for all.
        </span>
      )}
    </form>
  );
}

function PartitionChoice({ topic, partition, onChoose }: PartitionProps & { readonly topic: Topic }) {
  return (
    <Choice
      label="Partition"
      hideLabel
      value={partition === undefined ? 'all' : String(partition)}
      options={[
        { id: 'all', label: 'All partitions' },
        ...topic.partitions.map((one) => ({
          id: String(one.partition),
          label: `Partition ${one.partition}`,
        })),
      ]}
      onChange={(id) => onChoose(id === 'all' ? undefined : Number(id))}
    />
  );
}

/** Beyond this there is no `Date`. */
const MS_MAX = 8.64e15;

function textOf(from: string, zone: 'utc' | 'local'): string {
  if (from.startsWith('ts:')) {
    const ms = Number(from.slice(3));
    // What no calendar has stays as it was written.
    return Math.abs(ms) <= MS_MAX ? typedInstant(ms, zone) : from.slice(3);
  }
  return /^\d+$/.test(from) ? from : '';
}
