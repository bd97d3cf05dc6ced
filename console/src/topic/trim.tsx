import { useMutation, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import type { Trimmed } from '../api/client';
import { type Described, type TrimWish, topicKey, trim, trimAsShown, trimRequest } from '../api/topics';
import { useSettings } from '../app/settings';
import { curl } from '../curl/curl';
import { PartitionTable } from '../edit/partitions';
import { Failed, Result, TypedImpact } from '../edit/typed';
import { bytes, counted } from '../format/number';
import { instant, parseInstant, zoneName } from '../format/time';
import { CopyButton } from '../ui/copy';
import { Field, Segments } from '../ui/field';
import { ProblemBox } from '../ui/problem';
import { type Kind, wishOf } from './trimming';

interface TrimProps {
  readonly described: Described;
  readonly onClose: () => void;
}

/** Up to where, how much that is, and only after the name was typed the button that does it. */
export function TrimForm({ described: { topic, etag }, onClose }: TrimProps) {
  const { ns, name, config } = topic;
  const { zone } = useSettings();
  const [kind, setKind] = useState<Kind>('time');
  const [time, setTime] = useState(() => instant(Date.now() - 3_600_000, zone).slice(0, 19));
  const [offset, setOffset] = useState('');
  const [partition, setPartition] = useState('');
  const { preview, act } = useTrim(ns, name);
  const { wish, errors } = wishOf(
    kind,
    { ms: parseInstant(time, zone), offset, partition },
    config.partitions ?? 1,
  );
  // What was counted holds for what it was counted for.
  const change = <T,>(set: (value: T) => void) => {
    return (value: T) => {
      preview.reset();
      act.reset();
      set(value);
    };
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    act.reset();
    if (wish) preview.mutate({ wish, etag });
  };
  const shown = preview.data;
  return (
    <>
      <form onSubmit={submit} noValidate>
        <p>
          The oldest messages are removed for all readers and subscriptions, on disk and in the object store.
          Offsets do not change. <strong>This cannot be undone.</strong>
        </p>
        <Segments
          label="Remove what is before"
          value={kind}
          options={[
            { id: 'time', label: 'A time' },
            { id: 'offset', label: 'An offset' },
            { id: 'end', label: 'The end' },
          ]}
          onChange={change(setKind)}
        />
        {kind === 'time' && (
          <Field
            label={`Time, ${zoneName(zone)}`}
            mono
            autoFocus
            value={time}
            error={errors.time}
            hint="Messages published from then on stay."
            onChange={change(setTime)}
          />
        )}
        {kind === 'offset' && (
          <Field
            label="Offset"
            mono
            autoFocus
            inputMode="numeric"
            value={offset}
            error={offset === '' ? null : errors.offset}
            hint="The first message that stays."
            onChange={change(setOffset)}
          />
        )}
        {config.partitions !== 1 && (
          <Field
            label="Partition"
            mono
            inputMode="numeric"
            value={partition}
            error={partition === '' ? null : errors.partition}
            hint={kind === 'offset' ? 'An offset belongs to one partition.' : 'All of them if it is empty.'}
            onChange={change(setPartition)}
          />
        )}
        <div className="actions">
          <CopyButton
            text={() => curl(trimRequest(ns, name, wish ?? { before: 'end' }, !shown))}
            label="Copy as curl"
          />
          <span className="spacer" />
          <button type="button" onClick={onClose}>
            {act.data ? 'Close' : 'Cancel'}
          </button>
          <button
            type="submit"
            className={shown ? '' : 'primary'}
            disabled={!wish}
            aria-disabled={preview.isPending}
          >
            Preview
          </button>
        </div>
      </form>
      <div aria-live="polite" className="seek-answer">
        {preview.error && <ProblemBox error={preview.error} title="It could not be counted" />}
        {act.error && <Failed error={act.error} title="Nothing was removed" />}
        {shown && !act.data && shown.messages === 0 && <p className="note">There is nothing to remove.</p>}
        {shown && !act.data && !act.error && shown.messages > 0 && (
          <TypedImpact
            noun="topic"
            name={name}
            action={act.isPending ? 'Removing …' : `Remove ${counted(shown.messages, 'message')}`}
            pending={act.isPending}
            onConfirm={() => act.mutate({ shown, etag: preview.variables.etag })}
          >
            <Impact trimmed={shown} />
          </TypedImpact>
        )}
        {act.data && (
          <Result title={act.data.stopped ? 'Not all was removed' : 'Done'}>
            <p>
              {counted(act.data.messages, 'message')}, {bytes(act.data.bytes)}, are gone.
              {act.data.stopped && ` It stopped at partition ${act.data.stopped.partition}:`}
            </p>
            {act.data.stopped && (
              <ProblemBox
                error={act.data.stopped.error}
                title={`Partition ${act.data.stopped.partition} was not trimmed`}
              />
            )}
          </Result>
        )}
      </div>
    </>
  );
}

function useTrim(ns: string, name: string) {
  const client = useQueryClient();
  const preview = useMutation({
    mutationFn: ({ wish, etag }: { wish: TrimWish; etag: string }) => trim(ns, name, etag, wish, true),
  });
  const act = useMutation({
    mutationFn: ({ shown, etag }: { shown: Trimmed; etag: string }) => trimAsShown(ns, name, etag, shown),
    // Also where it failed: some partitions may be trimmed.
    onSettled: () => void client.invalidateQueries({ queryKey: topicKey(ns, name) }),
  });
  return { preview, act };
}

function Impact({ trimmed: { messages, bytes: size, partitions } }: { trimmed: Trimmed }) {
  return (
    <>
      <p>
        <strong>
          {counted(messages, 'message')} ({bytes(size)})
        </strong>{' '}
        would be gone for everyone. This cannot be undone.
      </p>
      <PartitionTable
        parts={partitions}
        name={({ partition }) => String(partition)}
        columns={[
          ['Oldest that stays', (found) => found.start],
          ['Messages', (found) => found.messages],
          ['Size', (found) => bytes(found.bytes)],
        ]}
      />
    </>
  );
}
