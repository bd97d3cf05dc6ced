import { useMutation, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useEffect, useRef, useState } from 'react';
import { type Seeked, type Subscription, undoOf } from '../api/client';
import { type SeekTarget, seek, seekRequest, subscriptionKey } from '../api/subscriptions';
import { useSettings } from '../app/settings';
import { renewing, setter } from '../edit/draft';
import { OffsetField } from '../edit/offset';
import { PartitionTable, partName } from '../edit/partitions';
import { PreviewActions } from '../edit/preview';
import { TimeField } from '../edit/time';
import { Failed, Result } from '../edit/typed';
import { counted } from '../format/number';
import { parseInstant, secondAgo } from '../format/time';
import { Segments } from '../ui/field';
import { ProblemBox } from '../ui/problem';
import { lastMoveOf, moved } from './moves';
import { TakeBack } from './takeBack';

interface Draft {
  readonly kind: 'earliest' | 'latest' | 'offset' | 'time';
  readonly offset: string;
  readonly time: string;
}

interface SeekProps {
  readonly subscription: Subscription;
  readonly onClose: () => void;
}

/** Where to, what that would do, and only then the button that does it. */
export function SeekForm({ subscription, onClose }: SeekProps) {
  const { ns, name, parts } = subscription;
  const { zone } = useSettings();
  const [draft, setDraft] = useState<Draft>(() => ({
    kind: 'earliest',
    offset: '',
    time: secondAgo(60_000, zone),
  }));
  const target = targetOf(draft, parseInstant(draft.time, zone));
  const seeking = useSeek(subscription);
  const { preview, act, ask } = seeking;
  const onChange = renewing(preview, [act], setDraft);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (target.to !== null) ask({ to: target.to });
  };
  const wish = preview.variables ?? { to: target.to ?? 'earliest' };
  return (
    <form onSubmit={submit} noValidate>
      <p>
        Everything from there on is delivered, also what was settled or is dead; everything before it is
        settled. Leases end, attempts begin anew.
      </p>
      <TargetFields partitions={parts.length} draft={draft} error={target.error} onChange={onChange} />
      <PreviewActions
        request={() => seekRequest(ns, name, wish, !preview.data)}
        shown={preview.isSuccess}
        done={act.isSuccess}
        disabled={target.to === null || act.isPending}
        pending={preview.isPending}
        onClose={onClose}
      />
      <Answer subscription={subscription} seeking={seeking} />
    </form>
  );
}

function useSeek(subscription: Subscription) {
  const { ns, name } = subscription;
  const client = useQueryClient();
  const preview = useMutation({ mutationFn: (wish: SeekTarget) => seek(ns, name, wish, true) });
  const act = useMutation({
    mutationFn: (wish: SeekTarget) => seek(ns, name, wish, false),
    onSuccess: ({ undo }) => {
      moved(subscription, 'seek', undo);
    },
    onError: (error) => moved(subscription, 'seek', undoOf(error)),
    // Also where it failed: some partitions may be moved.
    onSettled: () => void client.invalidateQueries({ queryKey: subscriptionKey(ns, name) }),
  });
  const ask = (wish: SeekTarget) => {
    if (act.isPending) return;
    act.reset();
    preview.mutate(wish);
  };
  return { preview, act, ask };
}

interface Target {
  readonly to: string | null;
  readonly error: string | null;
}

function targetOf({ kind, offset }: Draft, ms: number | null): Target {
  if (kind === 'earliest' || kind === 'latest') return { to: kind, error: null };
  if (kind === 'time') {
    return ms === null ? { to: null, error: 'Like 2026-01-31 14:05:00' } : { to: `ts:${ms}`, error: null };
  }
  const text = offset.trim();
  return /^\d{1,16}$/.test(text) ? { to: text, error: null } : { to: null, error: 'An offset is a number.' };
}

interface TargetFieldsProps {
  readonly partitions: number;
  readonly draft: Draft;
  readonly error: string | null;
  readonly onChange: (draft: Draft) => void;
}

function TargetFields({ partitions, draft, error, onChange }: TargetFieldsProps) {
  const { kind, offset, time } = draft;
  const set = setter({ draft, onChange });
  return (
    <>
      <Segments
        label="Seek to"
        value={kind}
        options={[
          { id: 'earliest', label: 'Oldest' },
          { id: 'latest', label: 'Newest' },
          { id: 'offset', label: 'Offset', disabled: partitions !== 1 },
          { id: 'time', label: 'Time' },
        ]}
        onChange={(value) => set('kind', value)}
      />
      {kind === 'offset' && (
        <OffsetField
          autoFocus
          value={offset}
          error={error}
          hint="The first message that is delivered again."
          onChange={(value) => set('offset', value)}
        />
      )}
      {kind === 'time' && (
        <TimeField
          autoFocus
          value={time}
          error={error}
          hint="Messages published from then on are delivered again."
          onChange={(value) => set('time', value)}
        />
      )}
      {partitions > 1 && kind !== 'time' && (
        <p className="note">
          All {partitions} partitions. By offset only a topic of one partition can be sought.
        </p>
      )}
    </>
  );
}

interface AnswerProps {
  readonly subscription: Subscription;
  readonly seeking: ReturnType<typeof useSeek>;
}

/** What it would do or did, and the way back. */
function Answer({ subscription, seeking: { preview, act, ask } }: AnswerProps) {
  const { ns, name } = subscription;
  const wish = preview.variables;
  const last = lastMoveOf(subscription);
  return (
    <div aria-live="polite" className="seek-answer">
      {preview.error && <ProblemBox error={preview.error} title="It could not be counted" />}
      {act.error && <Failed error={act.error} title="Nothing was moved" />}
      {preview.data && !act.data && !act.error && wish && (
        <Impact
          seeked={preview.data}
          verb={wish.undo ? 'Undo' : 'Seek'}
          pending={act.isPending}
          onConfirm={() => act.isPending || act.mutate(wish)}
        />
      )}
      {act.data && <Done seeked={act.data} />}
      {last && wish?.undo !== last.undo && !preview.isPending && (
        <TakeBack
          what={act.data ? 'It' : `The last ${last.what} from here`}
          ns={ns}
          name={name}
          undo={last.undo}
        >
          <button type="button" onClick={() => ask({ to: 'undo', undo: last.undo })}>
            Undo the last {last.what}
          </button>
        </TakeBack>
      )}
    </div>
  );
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
        name={partName}
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

function Done({ seeked: { redelivered, skipped } }: { seeked: Seeked }) {
  return (
    <Result title="Done">
      <p>
        {counted(redelivered, 'message')} will be delivered again, {counted(skipped, 'message')} were skipped.
      </p>
    </Result>
  );
}
