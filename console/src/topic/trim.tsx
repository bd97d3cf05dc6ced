import { useMutation, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import type { Trimmed } from '../api/client';
import {
  type Described,
  type Done,
  type TrimWish,
  topicKey,
  trim,
  trimAsShown,
  trimRequest,
} from '../api/topics';
import { useSettings } from '../app/settings';
import { type FieldsProps, renewing, setter } from '../edit/draft';
import { OffsetField } from '../edit/offset';
import { PartitionTable, partName } from '../edit/partitions';
import { PreviewActions } from '../edit/preview';
import { TimeField } from '../edit/time';
import { Failed, Result, TypedImpact } from '../edit/typed';
import { bytes, counted } from '../format/number';
import { parseInstant, secondAgo } from '../format/time';
import { Field, Segments } from '../ui/field';
import { ProblemBox } from '../ui/problem';
import { type Kind, type Wanted, wishOf } from './trimming';

interface Draft {
  readonly kind: Kind;
  readonly time: string;
  readonly offset: string;
  readonly partition: string;
}

interface TrimProps {
  readonly described: Described;
  readonly onClose: () => void;
}

/** Up to where, how much that is, and only after the name was typed the button that does it. */
export function TrimForm({ described: { topic, etag }, onClose }: TrimProps) {
  const { ns, name } = topic;
  const { partitions } = topic.config;
  const { zone } = useSettings();
  const [draft, setDraft] = useState<Draft>(() => ({
    kind: 'time',
    time: secondAgo(3_600_000, zone),
    offset: '',
    partition: '',
  }));
  const { wish, errors } = wishOf(draft.kind, { ...draft, ms: parseInstant(draft.time, zone) }, partitions);
  const trimming = useTrim(ns, name);
  const { preview, act } = trimming;
  const onChange = renewing(preview, [act], setDraft);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    act.reset();
    if (wish) preview.mutate({ wish, etag });
  };
  return (
    <>
      <form onSubmit={submit} noValidate>
        <p>
          The oldest messages are removed for all readers and subscriptions, on disk and in the object store.
          Offsets do not change. <strong>This cannot be undone.</strong>
        </p>
        <TrimFields partitions={partitions} draft={draft} errors={errors} onChange={onChange} />
        <PreviewActions
          request={() => trimRequest(ns, name, wish ?? { before: 'end' }, !preview.data)}
          shown={preview.isSuccess}
          done={act.isSuccess}
          disabled={!wish || act.isPending}
          pending={preview.isPending}
          onClose={onClose}
        />
      </form>
      <Answer name={name} trimming={trimming} />
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

interface TrimFieldsProps extends FieldsProps<Draft, Wanted['errors']> {
  readonly partitions: number;
}

function TrimFields({ partitions, draft, errors, onChange }: TrimFieldsProps) {
  const { kind, time, offset, partition } = draft;
  const set = setter({ draft, onChange });
  return (
    <>
      <Segments
        label="Remove what is before"
        value={kind}
        options={[
          { id: 'time', label: 'A time' },
          { id: 'offset', label: 'An offset' },
          { id: 'end', label: 'The end' },
        ]}
        onChange={(value) => set('kind', value)}
      />
      {kind === 'time' && (
        <TimeField
          autoFocus
          value={time}
          error={errors.time}
          hint="Messages published from then on stay."
          onChange={(value) => set('time', value)}
        />
      )}
      {kind === 'offset' && (
        <OffsetField
          autoFocus
          value={offset}
          error={errors.offset}
          hint="The first message that stays."
          onChange={(value) => set('offset', value)}
        />
      )}
      {partitions !== 1 && (
        <Field
          label="Partition"
          mono
          inputMode="numeric"
          value={partition}
          error={partition === '' ? null : errors.partition}
          hint={kind === 'offset' ? 'An offset belongs to one partition.' : 'All of them if it is empty.'}
          onChange={(value) => set('partition', value)}
        />
      )}
    </>
  );
}

interface AnswerProps {
  readonly name: string;
  readonly trimming: ReturnType<typeof useTrim>;
}

/** What it would remove, or did. */
function Answer({ name, trimming: { preview, act } }: AnswerProps) {
  const shown = preview.data;
  return (
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
      {act.data && <Removed {...act.data} />}
    </div>
  );
}

function Removed({ messages, bytes: size, stopped }: Done) {
  return (
    <Result title={stopped ? 'Not all was removed' : 'Done'}>
      <p>
        {counted(messages, 'message')}, {bytes(size)}, are gone.
        {stopped && ` It stopped at partition ${stopped.partition}:`}
      </p>
      {stopped && (
        <ProblemBox error={stopped.error} title={`Partition ${stopped.partition} was not trimmed`} />
      )}
    </Result>
  );
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
        name={partName}
        columns={[
          ['Oldest that stays', (found) => found.start],
          ['Messages', (found) => found.messages],
          ['Size', (found) => bytes(found.bytes)],
        ]}
      />
    </>
  );
}
