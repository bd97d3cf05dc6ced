import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { type FormEvent, useId, useState } from 'react';
import type { Subscription } from '../api/client';
import { type ForkWish, fork, forkRequest } from '../api/subscriptions';
import { listChanged } from '../api/topics';
import { useSettings } from '../app/settings';
import { curl } from '../curl/curl';
import { nameError } from '../edit/name';
import { TimeField } from '../edit/time';
import { parseInstant, secondAgo } from '../format/time';
import { CopyButton } from '../ui/copy';
import { Check, Field, Segments } from '../ui/field';
import { ProblemBox } from '../ui/problem';
import { lastMoveOf } from './moves';

type When = 'now' | 'seek' | 'time';

interface ForkProps {
  readonly subscription: Subscription;
  readonly onClose: () => void;
}

/** A new subscription that begins as this one stands or stood. */
export function ForkForm({ subscription, onClose }: ForkProps) {
  const { ns, name } = subscription;
  const client = useQueryClient();
  const navigate = useNavigate();
  const [to, setTo] = useState(`${name}-fork`.slice(0, 255));
  const when = useWhen(lastMoveOf(subscription)?.undo);
  const [paused, setPaused] = useState(false);
  const [tried, setTried] = useState(false);
  const hint = useId();

  const wish: ForkWish = { name: to, at: when.at ?? 'now', ...(paused && { config: { paused } }) };
  const make = useMutation({
    mutationFn: () => fork(ns, name, wish),
    onSuccess: async () => {
      await navigate({ to: '/ns/$ns/subscriptions/$subscription', params: { ns, subscription: to } });
      await listChanged(client, ns, 'subscriptions');
    },
  });
  const badName = nameError(to);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setTried(true);
    if (!badName && !when.error && !make.isPending) make.mutate();
  };
  return (
    <form onSubmit={submit} noValidate aria-describedby={hint}>
      <p id={hint}>
        It begins with what was settled, dead and tried at that instant, and with the same configuration.
        Nothing is copied; both go on by themselves.
      </p>
      <Field
        label="Name"
        mono
        autoFocus
        value={to}
        error={tried || to !== '' ? badName : null}
        hint="Of the new subscription."
        onChange={setTo}
      />
      <When when={when} tried={tried} />
      <Check
        label="Paused"
        checked={paused}
        hint="Nothing is leased until it is resumed: to look first."
        onChange={setPaused}
      />
      <div className="actions">
        <CopyButton text={() => curl(forkRequest(ns, name, wish))} label="Copy as curl" />
        <span className="spacer" />
        <button type="button" onClick={onClose}>
          Cancel
        </button>
        <button type="submit" className="primary" aria-disabled={make.isPending}>
          {make.isPending ? 'Forking …' : 'Fork'}
        </button>
      </div>
      {make.error && <ProblemBox error={make.error} title="It was not forked" />}
    </form>
  );
}

/** The instant it begins as. */
function useWhen(seek: string | undefined) {
  const { zone } = useSettings();
  const [kind, setKind] = useState<When>('now');
  const [time, setTime] = useState(() => secondAgo(300_000, zone));
  const [undo, setUndo] = useState(seek ?? '');
  const ms = parseInstant(time, zone);
  const at = { now: 'now', seek: undo.trim(), time: ms === null ? null : `ts:${ms}` }[kind];
  const bad = { now: null, seek: 'Like snap_00c0ffee00c0ffee', time: 'Like 2026-01-31 14:05:00' }[kind];
  const isRight = kind === 'seek' ? /^snap_[0-9a-f]{16}$/.test(undo.trim()) : at !== null;
  return { kind, setKind, time, setTime, undo, setUndo, at, error: isRight ? null : bad };
}

function When({ when, tried }: { when: ReturnType<typeof useWhen>; tried: boolean }) {
  return (
    <>
      <Segments
        label="As it stood"
        value={when.kind}
        options={[
          { id: 'now', label: 'Now' },
          { id: 'seek', label: 'Before a seek' },
          { id: 'time', label: 'Time' },
        ]}
        onChange={when.setKind}
      />
      {when.kind === 'seek' && (
        <Field
          label="Seek"
          mono
          value={when.undo}
          error={tried || when.undo !== '' ? when.error : null}
          hint="What the seek answered as undo. Of each partition the latest four are kept."
          onChange={when.setUndo}
        />
      )}
      {when.kind === 'time' && (
        <TimeField
          value={when.time}
          error={when.error}
          hint="About an hour is kept, a state of each minute in which something changed."
          onChange={when.setTime}
        />
      )}
    </>
  );
}
