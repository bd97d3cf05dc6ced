import { useMutation, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { type Purged, type Subscription, undoOf } from '../api/client';
import { type PurgeWhat, purge, purgeRequest, seek, subscriptionKey } from '../api/subscriptions';
import { renewing } from '../edit/draft';
import { PartitionTable, partName } from '../edit/partitions';
import { PreviewActions } from '../edit/preview';
import { Failed, Result, TypedImpact } from '../edit/typed';
import { counted, grouped } from '../format/number';
import { isStream } from '../subscriptions/config';
import { Segments } from '../ui/field';
import { ProblemBox } from '../ui/problem';
import { lastMoveOf, moved } from './moves';
import { TakeBack } from './takeBack';

interface PurgeProps {
  readonly subscription: Subscription;
  readonly onClose: () => void;
}

/** What goes, how much that is, and only after the name was typed the button that does it. */
export function PurgeForm({ subscription, onClose }: PurgeProps) {
  const { ns, name, config } = subscription;
  const [what, setWhat] = useState<PurgeWhat>('all');
  const purging = usePurge(subscription);
  const { preview, act, undo } = purging;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    act.reset();
    undo.reset();
    preview.mutate(what);
  };
  return (
    <>
      <form onSubmit={submit}>
        <p>
          {what === 'all'
            ? 'Everything that waits is done with for this subscription, without being delivered: what is ready, leased, delayed and dead. Leases end.'
            : 'Its dead letters are forgotten: not listed and not redriven any more. Nothing else changes.'}{' '}
          The messages themselves stay in <code>{config.topics.join(', ')}</code>, unless a topic keeps them
          only until they are settled.
        </p>
        {!isStream(config) && (
          <Segments
            label="Purge"
            value={what}
            options={[
              { id: 'all', label: 'Everything' },
              { id: 'dead', label: 'Dead letters' },
            ]}
            onChange={renewing(preview, [act, undo], setWhat)}
          />
        )}
        <PreviewActions
          request={() => purgeRequest(ns, name, what, !preview.data)}
          shown={preview.isSuccess}
          done={act.isSuccess}
          disabled={act.isPending || undo.isPending}
          pending={preview.isPending}
          // The first thing to do in the dialog.
          autoFocus
          onClose={onClose}
        />
      </form>
      <Answer subscription={subscription} what={preview.variables ?? what} purging={purging} />
    </>
  );
}

function usePurge(subscription: Subscription) {
  const { ns, name } = subscription;
  const client = useQueryClient();
  const changed = () => void client.invalidateQueries({ queryKey: subscriptionKey(ns, name) });
  const preview = useMutation({ mutationFn: (what: PurgeWhat) => purge(ns, name, what, true) });
  const act = useMutation({
    mutationFn: (what: PurgeWhat) => purge(ns, name, what, false),
    onSuccess: (purged) => {
      moved(subscription, 'purge', purged.undo);
    },
    onError: (error) => moved(subscription, 'purge', undoOf(error)),
    // Also where it failed: some partitions may be purged.
    onSettled: changed,
  });
  const undo = useMutation({
    mutationFn: (token: string) => seek(ns, name, { to: 'undo', undo: token }, false),
    onSuccess: (seeked) => {
      moved(subscription, 'seek', seeked.undo);
    },
    onSettled: changed,
  });
  return { preview, act, undo };
}

interface AnswerProps {
  readonly subscription: Subscription;
  readonly what: PurgeWhat;
  readonly purging: ReturnType<typeof usePurge>;
}

/** What it would do or did, and the way back. */
function Answer({ subscription, what, purging: { preview, act, undo } }: AnswerProps) {
  const { ns, name } = subscription;
  const last = lastMoveOf(subscription);
  return (
    <div aria-live="polite" className="seek-answer">
      {preview.error && <ProblemBox error={preview.error} title="It could not be counted" />}
      {act.error && <Failed error={act.error} title="Nothing was purged" />}
      {undo.error && <ProblemBox error={undo.error} title="Not taken back" />}
      {preview.data && !act.data && !act.error && (
        <TypedImpact
          noun="subscription"
          name={name}
          action={act.isPending ? 'Purging …' : 'Purge now'}
          pending={act.isPending}
          onConfirm={() => act.mutate(what)}
        >
          <Impact purged={preview.data} what={what} />
        </TypedImpact>
      )}
      {act.data && !undo.data && (
        <Result title="Done">
          <p>
            {counted(act.data.purged, 'message')} purged, {grouped(act.data.dead)} of them dead.
          </p>
        </Result>
      )}
      {undo.data && (
        <Result title="Taken back">
          <p>What stood before stands again, with what was settled since the last seek or purge.</p>
        </Result>
      )}
      {(act.data?.undo ?? undoOf(act.error)) && !undo.data && last && (
        <TakeBack what="It" ns={ns} name={name} undo={last.undo}>
          <button
            type="button"
            aria-disabled={undo.isPending}
            onClick={() => undo.isPending || undo.mutate(last.undo)}
          >
            Undo the purge
          </button>
        </TakeBack>
      )}
    </div>
  );
}

function Impact({ purged: { purged, dead, parts }, what }: { purged: Purged; what: PurgeWhat }) {
  return (
    <>
      <p>
        {what === 'dead' ? (
          <>
            <strong>{counted(dead, 'dead letter')}</strong> would be forgotten.
          </>
        ) : (
          <>
            <strong>{counted(purged - dead, 'message')}</strong> would be settled without being delivered,{' '}
            <strong>{counted(dead, 'dead letter')}</strong> forgotten.
          </>
        )}{' '}
        It can be taken back{what === 'dead' && ' until the next seek or other purge'}.
      </p>
      <PartitionTable
        parts={parts}
        name={partName}
        columns={[
          ['Settled', (part) => part.purged - part.dead],
          ['Dead', (part) => part.dead],
        ]}
      />
    </>
  );
}
