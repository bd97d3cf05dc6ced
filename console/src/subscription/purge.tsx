import { useMutation, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { type Purged, type Subscription, undoOf } from '../api/client';
import { type PurgeWhat, purge, purgeRequest, seek, subscriptionKey } from '../api/subscriptions';
import { curl } from '../curl/curl';
import { PartitionTable } from '../edit/partitions';
import { Failed, Result, TypedImpact } from '../edit/typed';
import { counted, grouped } from '../format/number';
import { isStream } from '../subscriptions/config';
import { CopyButton } from '../ui/copy';
import { Segments } from '../ui/field';
import { ProblemBox } from '../ui/problem';
import { lastMoveOf, moved } from './moves';

interface PurgeProps {
  readonly subscription: Subscription;
  readonly onClose: () => void;
}

/** What goes, how much that is, and only after the name was typed the button that does it. */
export function PurgeForm({ subscription, onClose }: PurgeProps) {
  const { ns, name, config } = subscription;
  const [what, setWhat] = useState<PurgeWhat>('all');
  const { preview, act, undo, reset } = usePurge(ns, name);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    act.reset();
    undo.reset();
    preview.mutate(what);
  };
  const last = lastMoveOf(ns, name);
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
            onChange={(value) => {
              reset();
              setWhat(value);
            }}
          />
        )}
        <div className="actions">
          <CopyButton text={() => curl(purgeRequest(ns, name, what, !preview.data))} label="Copy as curl" />
          <span className="spacer" />
          <button type="button" onClick={onClose}>
            {act.data ? 'Close' : 'Cancel'}
          </button>
          <button
            type="submit"
            className={preview.data ? '' : 'primary'}
            aria-disabled={preview.isPending}
            // biome-ignore lint/a11y/noAutofocus: the first thing to do in the dialog
            autoFocus
          >
            Preview
          </button>
        </div>
      </form>
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
          <p className="note">
            It can be taken back, also with{' '}
            <code>
              weir subscription undo {name} {last.undo}
            </code>{' '}
            <button
              type="button"
              aria-disabled={undo.isPending}
              onClick={() => undo.isPending || undo.mutate(last.undo)}
            >
              Undo the purge
            </button>
          </p>
        )}
      </div>
    </>
  );
}

function usePurge(ns: string, name: string) {
  const client = useQueryClient();
  const changed = () => void client.invalidateQueries({ queryKey: subscriptionKey(ns, name) });
  const preview = useMutation({ mutationFn: (what: PurgeWhat) => purge(ns, name, what, true) });
  const act = useMutation({
    mutationFn: (what: PurgeWhat) => purge(ns, name, what, false),
    onSuccess: (purged) => {
      moved(ns, name, 'purge', purged.undo);
    },
    onError: (error) => moved(ns, name, 'purge', undoOf(error)),
    // Also where it failed: some partitions may be purged.
    onSettled: changed,
  });
  const undo = useMutation({
    mutationFn: (token: string) => seek(ns, name, { to: 'undo', undo: token }, false),
    onSuccess: (seeked) => {
      moved(ns, name, 'seek', seeked.undo);
    },
    onSettled: changed,
  });
  // What was counted holds for what it was counted for.
  const reset = () => {
    for (const each of [preview, act, undo]) each.reset();
  };
  return { preview, act, undo, reset };
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
        name={({ topic, partition }) => (topic ? `${topic} ${partition}` : String(partition))}
        columns={[
          ['Settled', (part) => part.purged - part.dead],
          ['Dead', (part) => part.dead],
        ]}
      />
    </>
  );
}
