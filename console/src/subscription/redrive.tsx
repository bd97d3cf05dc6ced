import { useMutation, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useEffect, useRef, useState } from 'react';
import type { Subscription } from '../api/client';
import { type RedriveWish, redriveRequest, subscriptionKey } from '../api/subscriptions';
import { type FieldsProps, renewing, setter } from '../edit/draft';
import { PreviewActions } from '../edit/preview';
import { Result } from '../edit/typed';
import { counted, grouped } from '../format/number';
import { Sheet } from '../ui/dialog';
import { Field } from '../ui/field';
import { ProblemBox } from '../ui/problem';
import { type Progress, redriveAll } from './redriving';

interface BarProps {
  readonly subscription: Subscription;
  readonly picked: ReadonlySet<string>;
  readonly onDone: () => void;
}

/** The way to deliver dead letters once more. */
export function RedriveBar({ subscription, picked, onDone }: BarProps) {
  const [open, setOpen] = useState(false);
  // What was picked is picked still where nothing came of it.
  const redriven = useRef(false);
  const { name, totals } = subscription;
  if (totals.dead === 0) return null;
  const close = () => {
    setOpen(false);
    if (redriven.current) onDone();
    redriven.current = false;
  };
  return (
    <div className="toolbar">
      <span className="faint">
        {picked.size > 0 ? `${counted(picked.size, 'message')} picked` : 'Delivered again, they begin anew.'}
      </span>
      <span className="spacer" />
      <button type="button" className={picked.size > 0 ? 'primary' : ''} onClick={() => setOpen(true)}>
        Redrive {picked.size > 0 ? grouped(picked.size) : 'dead letters'}
      </button>
      <Sheet title={`Redrive dead letters of ${name}`} open={open} onClose={close}>
        <RedriveForm
          subscription={subscription}
          picked={picked}
          onDone={() => {
            redriven.current = true;
          }}
          onClose={close}
        />
      </Sheet>
    </div>
  );
}

const numberOr = (text: string, most: number) => {
  const value = /^\d{1,6}$/.test(text.trim()) ? Number(text) : 0;
  return value >= 1 && value <= most ? value : null;
};

interface Draft {
  readonly most: string;
  readonly filter: string;
  readonly rate: string;
}

type DraftErrors = Partial<Record<keyof Draft, string>>;

/** What the form says, or what is wrong with each field. */
function readDraft({ most, filter, rate }: Draft, picked: ReadonlySet<string>) {
  const errors: DraftErrors = {};
  const max = numberOr(most, 100_000);
  if (picked.size === 0 && max === null) errors.most = 'A number from 1 to 100,000.';
  const perSecond = rate.trim() === '' ? undefined : numberOr(rate, 10_000);
  if (perSecond === null) errors.rate = 'A number from 1 to 10,000.';
  const wish: RedriveWish = {
    ...(picked.size > 0 ? { ids: [...picked] } : { max: max ?? 1 }),
    ...(filter.trim() && { filter: filter.trim() }),
    ...(perSecond && { rate: perSecond }),
  };
  return { wish, errors };
}

/** Counts and redrives. What is under way ends with the form, or when it is stopped. */
function useRedrive(ns: string, name: string, wish: RedriveWish, onDone: () => void) {
  const client = useQueryClient();
  const [progress, setProgress] = useState<Progress | null>(null);
  const going = useRef(true);
  useEffect(() => {
    going.current = true;
    return () => {
      going.current = false;
    };
  }, []);
  const preview = useMutation({
    mutationFn: () => redriveAll({ ns, name, wish, dryRun: true, onProgress: () => going.current }),
  });
  const act = useMutation({
    mutationFn: () => {
      going.current = true;
      const onProgress = (now: Progress) => {
        setProgress(now);
        return going.current;
      };
      return redriveAll({ ns, name, wish, dryRun: false, onProgress });
    },
    onSuccess: onDone,
    onSettled: () => void client.invalidateQueries({ queryKey: subscriptionKey(ns, name) }),
  });
  const stop = () => {
    going.current = false;
  };
  return { preview, act, redriven: progress?.redriven ?? 0, stop };
}

/** Which, how fast; what that would be; and only then the button that does it. */
function RedriveForm({ subscription, picked, onDone, onClose }: BarProps & { onClose: () => void }) {
  const { ns, name } = subscription;
  const [draft, setDraft] = useState<Draft>({ most: '1000', filter: '', rate: '' });
  const { wish, errors } = readDraft(draft, picked);
  const { preview, act, redriven, stop } = useRedrive(ns, name, wish, onDone);
  const wrong = Object.keys(errors).length > 0;
  const onChange = renewing(preview, [act], setDraft);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    act.reset();
    if (!wrong) preview.mutate();
  };
  const total = preview.data?.redriven ?? 0;
  return (
    <form onSubmit={submit} noValidate>
      <p>
        They are where they always were, in the topic, and are delivered again to this subscription alone.
        What went to the dead letter topic stays there.
      </p>
      <RedriveFields
        picked={picked.size}
        draft={draft}
        errors={errors}
        disabled={act.isPending}
        onChange={onChange}
      />
      <PreviewActions
        request={() => redriveRequest(ns, name, wish, !preview.data)}
        shown={preview.isSuccess}
        done={act.isSuccess}
        disabled={wrong || act.isPending}
        onClose={onClose}
      />
      <div aria-live="polite" className="seek-answer">
        {preview.error && <ProblemBox error={preview.error} title="They could not be counted" />}
        {act.error && <ProblemBox error={act.error} title="Not all were redriven" />}
        {preview.data && !act.isPending && !act.data && (
          <Impact messages={total} onConfirm={() => act.mutate()} />
        )}
        {act.isPending && <Running done={redriven} of={total} onStop={stop} />}
        {act.data && <Redriven done={act.data} />}
      </div>
    </form>
  );
}

interface RedriveFieldsProps extends FieldsProps<Draft, DraftErrors> {
  /** How many were picked by hand. */
  readonly picked: number;
  /** One is under way: another beside it would be twice as fast, and only one of them could be stopped. */
  readonly disabled: boolean;
}

function RedriveFields({ picked, draft, errors, disabled, onChange }: RedriveFieldsProps) {
  const set = setter({ draft, onChange });
  return (
    <div className="fields">
      {picked > 0 ? (
        <p>{counted(picked, 'picked message')}.</p>
      ) : (
        <Field
          label="At most"
          mono
          inputMode="numeric"
          value={draft.most}
          disabled={disabled}
          error={errors.most}
          hint="The oldest of each partition first."
          onChange={(value) => set('most', value)}
        />
      )}
      <Field
        label="Only those that match"
        mono
        placeholder="all"
        maxLength={1024}
        value={draft.filter}
        disabled={disabled}
        hint="Like header.region == 'eu*'."
        onChange={(value) => set('filter', value)}
      />
      <Field
        label="Messages a second"
        mono
        inputMode="numeric"
        placeholder="at once"
        value={draft.rate}
        disabled={disabled}
        error={errors.rate}
        hint="Slowly enough for who failed before."
        onChange={(value) => set('rate', value)}
      />
    </div>
  );
}

/** How many it would be, and the button that does it. */
function Impact({ messages, onConfirm }: { messages: number; onConfirm: () => void }) {
  return (
    <section className="impact" aria-label="Preview">
      <p>
        <strong>{counted(messages, 'message')}</strong> would be delivered again.
      </p>
      <div className="actions">
        <span className="note">Nothing was changed so far.</span>
        <span className="spacer" />
        <button type="button" className="danger" disabled={messages === 0} onClick={onConfirm}>
          Redrive now
        </button>
      </div>
    </section>
  );
}

function Running({ done, of, onStop }: { done: number; of: number; onStop: () => void }) {
  return (
    <section className="impact" aria-label="Progress">
      <progress max={of} value={done} aria-label="Redriven so far" /> {grouped(done)} of {grouped(of)}{' '}
      <button type="button" onClick={onStop}>
        Stop
      </button>
    </section>
  );
}

function Redriven({ done }: { done: Progress }) {
  return (
    <Result title={done.stopped ? 'Stopped' : 'Done'}>
      <p>
        {counted(done.redriven, 'message')} will be delivered again.
        {done.deadAgain > 0 && ` ${grouped(done.deadAgain)} of them are dead again.`}
        {done.stopped && ' It stopped by itself: find out why before you go on.'}
      </p>
    </Result>
  );
}
