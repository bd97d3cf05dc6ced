import { useMutation, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useEffect, useRef, useState } from 'react';
import { type Seeked, type Subscription, undoOf } from '../api/client';
import { type SeekTarget, seek, seekRequest, subscriptionKey } from '../api/subscriptions';
import { useSettings } from '../app/settings';
import { curl } from '../curl/curl';
import { PartitionTable } from '../edit/partitions';
import { Failed } from '../edit/typed';
import { counted } from '../format/number';
import { instant, parseInstant, zoneName } from '../format/time';
import { CopyButton } from '../ui/copy';
import { Field, Segments } from '../ui/field';
import { ProblemBox } from '../ui/problem';
import { lastMoveOf, moved } from './moves';

type Kind = 'earliest' | 'latest' | 'offset' | 'time';

interface SeekProps {
  readonly subscription: Subscription;
  readonly onClose: () => void;
}

/** Where to, what that would do, and only then the button that does it. */
export function SeekForm({ subscription, onClose }: SeekProps) {
  const { ns, name, parts } = subscription;
  const client = useQueryClient();
  const { zone } = useSettings();
  const [kind, setKind] = useState<Kind>('earliest');
  const [offset, setOffset] = useState('');
  const [time, setTime] = useState(() => instant(Date.now() - 60_000, zone).slice(0, 19));
  const target = targetOf(kind, offset, parseInstant(time, zone));

  const preview = useMutation({ mutationFn: (wish: SeekTarget) => seek(ns, name, wish, true) });
  const move = useMutation({
    mutationFn: (wish: SeekTarget) => seek(ns, name, wish, false),
    onSuccess: ({ undo }) => {
      moved(ns, name, 'seek', undo);
    },
    onError: (error) => moved(ns, name, 'seek', undoOf(error)),
    // Also where it failed: some partitions may be moved.
    onSettled: () => void client.invalidateQueries({ queryKey: subscriptionKey(ns, name) }),
  });
  const last = lastMoveOf(ns, name);
  const ask = (wish: SeekTarget) => {
    move.reset();
    preview.mutate(wish);
  };
  // What was counted holds for what it was counted for.
  const change = <T,>(set: (value: T) => void) => {
    return (value: T) => {
      preview.reset();
      move.reset();
      set(value);
    };
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (target.to !== null) ask({ to: target.to });
  };
  const wish = preview.variables;
  return (
    <form onSubmit={submit} noValidate>
      <p>
        Everything from there on is delivered, also what was settled or is dead; everything before it is
        settled. Leases end, attempts begin anew.
      </p>
      <Segments
        label="Seek to"
        value={kind}
        options={[
          { id: 'earliest', label: 'Oldest' },
          { id: 'latest', label: 'Newest' },
          { id: 'offset', label: 'Offset', disabled: parts.length !== 1 },
          { id: 'time', label: 'Time' },
        ]}
        onChange={change(setKind)}
      />
      {kind === 'offset' && (
        <Field
          label="Offset"
          mono
          autoFocus
          inputMode="numeric"
          value={offset}
          error={offset === '' ? null : target.error}
          hint="The first message that is delivered again."
          onChange={change(setOffset)}
        />
      )}
      {kind === 'time' && (
        <Field
          label={`Time, ${zoneName(zone)}`}
          mono
          autoFocus
          value={time}
          error={target.error}
          hint="Messages published from then on are delivered again."
          onChange={change(setTime)}
        />
      )}
      {parts.length > 1 && kind !== 'time' && (
        <p className="note">
          All {parts.length} partitions. By offset only a topic of one partition can be sought.
        </p>
      )}
      <div className="actions">
        <CopyButton
          text={() => curl(seekRequest(ns, name, wish ?? { to: target.to ?? 'earliest' }, !preview.data))}
          label="Copy as curl"
        />
        <span className="spacer" />
        <button type="button" onClick={onClose}>
          {move.data ? 'Close' : 'Cancel'}
        </button>
        <button
          type="submit"
          className={preview.data ? '' : 'primary'}
          disabled={target.to === null}
          aria-disabled={preview.isPending}
        >
          Preview
        </button>
      </div>
      <div aria-live="polite" className="seek-answer">
        {preview.error && <ProblemBox error={preview.error} title="It could not be counted" />}
        {move.error && <Failed error={move.error} title="Nothing was moved" />}
        {preview.data && !move.data && !move.error && wish && (
          <Impact
            seeked={preview.data}
            verb={wish.undo ? 'Undo' : 'Seek'}
            pending={move.isPending}
            onConfirm={() => move.isPending || move.mutate(wish)}
          />
        )}
        {move.data && <Done seeked={move.data} />}
        {last && wish?.undo !== last.undo && !preview.isPending && (
          <p className="note">
            {move.data ? 'It can be taken back, ' : `The last ${last.what} from here can be taken back, `}
            also with{' '}
            <code>
              weir subscription undo {name} {last.undo}
            </code>{' '}
            <button type="button" onClick={() => ask({ to: 'undo', undo: last.undo })}>
              Undo the last {last.what}
            </button>
          </p>
        )}
      </div>
    </form>
  );
}

function targetOf(
  kind: Kind,
  offset: string,
  ms: number | null,
): { to: string | null; error: string | null } {
  if (kind === 'earliest' || kind === 'latest') return { to: kind, error: null };
  if (kind === 'time') {
    return ms === null ? { to: null, error: 'Like 2026-01-31 14:05:00' } : { to: `ts:${ms}`, error: null };
  }
  const text = offset.trim();
  return /^\d{1,16}$/.test(text) ? { to: text, error: null } : { to: null, error: 'An offset is a number.' };
}

interface ImpactProps {
  readonly seeked: Seeked;
  readonly verb: 'Seek' | 'Undo';
  readonly pending: boolean;
  readonly onConfirm: () => void;
}

/** What it would do, and the button that does it. */
function Impact({ seeked, verb, pending, onConfirm }: ImpactProps) {
  const { redelivered, skipped, parts } = seeked;
  const confirm = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    // It may answer a promise, which is nothing to be cleaned up.
    void confirm.current?.scrollIntoView({ block: 'nearest' });
  }, []);
  return (
    <section className="impact" aria-label="Preview">
      <p>
        <strong>{counted(redelivered, 'message')}</strong> that had been delivered, settled or dead-lettered
        would be delivered again; <strong>{counted(skipped, 'message')}</strong> not settled so far would be
        skipped.
      </p>
      <PartitionTable
        parts={parts}
        name={({ partition }) => String(partition)}
        columns={[
          ['From offset', (part) => part.floor],
          ['Again', (part) => part.redelivered],
          ['Skipped', (part) => part.skipped],
        ]}
      />
      <div className="actions">
        <span className="note">Nothing was changed so far.</span>
        <span className="spacer" />
        <button type="button" ref={confirm} className="danger" aria-disabled={pending} onClick={onConfirm}>
          {pending ? `${verb}ing …` : `${verb} now`}
        </button>
      </div>
    </section>
  );
}

function Done({ seeked }: { seeked: Seeked }) {
  const place = useRef<HTMLElement>(null);
  // The button that was pressed is gone: what it did has the focus instead.
  useEffect(() => place.current?.focus(), []);
  return (
    <section className="impact" aria-label="Result" ref={place} tabIndex={-1}>
      <h3>Done</h3>
      <p>
        {counted(seeked.redelivered, 'message')} will be delivered again, {counted(seeked.skipped, 'message')}{' '}
        were skipped.
      </p>
    </section>
  );
}
