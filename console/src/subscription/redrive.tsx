import { useMutation, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useEffect, useRef, useState } from 'react';
import type { Subscription } from '../api/client';
import { type RedriveWish, redriveRequest, subscriptionKey } from '../api/subscriptions';
import { curl } from '../curl/curl';
import { counted, grouped } from '../format/number';
import { CopyButton } from '../ui/copy';
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
  const { name, totals } = subscription;
  if (totals.dead === 0) return null;
  const close = () => {
    setOpen(false);
    onDone();
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
        <RedriveForm subscription={subscription} picked={picked} onClose={close} />
      </Sheet>
    </div>
  );
}

const numberOr = (text: string, most: number) => {
  const value = /^\d{1,6}$/.test(text.trim()) ? Number(text) : 0;
  return value >= 1 && value <= most ? value : null;
};

/** Which, how fast; what that would be; and only then the button that does it. */
function RedriveForm({ subscription, picked, onClose }: Omit<BarProps, 'onDone'> & { onClose: () => void }) {
  const { ns, name } = subscription;
  const client = useQueryClient();
  const [most, setMost] = useState('1000');
  const [filter, setFilter] = useState('');
  const [rate, setRate] = useState('');
  const [progress, setProgress] = useState<Progress | null>(null);
  const going = useRef(true);
  useEffect(() => {
    going.current = true;
    return () => {
      going.current = false;
    };
  }, []);
  const ids = picked.size > 0 ? [...picked] : null;
  const max = numberOr(most, 100_000);
  const perSecond = rate.trim() === '' ? undefined : numberOr(rate, 10_000);
  const wrong = (!ids && max === null) || perSecond === null;
  const wish: RedriveWish = {
    ...(ids ? { ids } : { max: max ?? 1 }),
    ...(filter.trim() && { filter: filter.trim() }),
    ...(perSecond && { rate: perSecond }),
  };
  const preview = useMutation({
    mutationFn: () => redriveAll({ ns, name, wish, dryRun: true, onProgress: () => going.current }),
  });
  const redrive = useMutation({
    mutationFn: () => {
      going.current = true;
      return redriveAll({
        ns,
        name,
        wish,
        dryRun: false,
        onProgress: (now) => {
          setProgress(now);
          return going.current;
        },
      });
    },
    onSettled: () => void client.invalidateQueries({ queryKey: subscriptionKey(ns, name) }),
  });
  const change = (set: (value: string) => void) => (value: string) => {
    preview.reset();
    redrive.reset();
    set(value);
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    redrive.reset();
    if (!wrong) preview.mutate();
  };
  return (
    <form onSubmit={submit} noValidate>
      <p>
        They are where they always were, in the topic, and are delivered again to this subscription alone.
        What went to the dead letter topic stays there.
      </p>
      <div className="fields">
        {ids ? (
          <p>{counted(ids.length, 'picked message')}.</p>
        ) : (
          <Field
            label="At most"
            mono
            inputMode="numeric"
            value={most}
            error={max === null ? 'A number from 1 to 100,000.' : null}
            hint="The oldest of each partition first."
            onChange={change(setMost)}
          />
        )}
        <Field
          label="Only those that match"
          mono
          placeholder="all"
          maxLength={1024}
          value={filter}
          hint="Like header.region == 'eu*'."
          onChange={change(setFilter)}
        />
        <Field
          label="Messages a second"
          mono
          inputMode="numeric"
          placeholder="at once"
          value={rate}
          error={perSecond === null ? 'A number from 1 to 10,000.' : null}
          hint="Slowly enough for who failed before."
          onChange={change(setRate)}
        />
      </div>
      <div className="actions">
        <CopyButton text={() => curl(redriveRequest(ns, name, wish, !preview.data))} label="Copy as curl" />
        <span className="spacer" />
        <button type="button" onClick={onClose}>
          {redrive.data ? 'Close' : 'Cancel'}
        </button>
        <button type="submit" className={preview.data ? '' : 'primary'} disabled={wrong}>
          Preview
        </button>
      </div>
      <div aria-live="polite" className="seek-answer">
        {preview.error && <ProblemBox error={preview.error} title="They could not be counted" />}
        {redrive.error && <ProblemBox error={redrive.error} title="Not all were redriven" />}
        {preview.data && !redrive.isPending && !redrive.data && (
          <section className="impact" aria-label="Preview">
            <p>
              <strong>{counted(preview.data.redriven, 'message')}</strong> would be delivered again.
            </p>
            <div className="actions">
              <span className="note">Nothing was changed so far.</span>
              <span className="spacer" />
              <button
                type="button"
                className="danger"
                disabled={preview.data.redriven === 0}
                onClick={() => redrive.mutate()}
              >
                Redrive now
              </button>
            </div>
          </section>
        )}
        {redrive.isPending && (
          <Running
            done={progress?.redriven ?? 0}
            of={preview.data?.redriven ?? 0}
            onStop={() => {
              going.current = false;
            }}
          />
        )}
        {redrive.data && <Result done={redrive.data} />}
      </div>
    </form>
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

function Result({ done }: { done: Progress }) {
  const place = useRef<HTMLElement>(null);
  // The button that was pressed is gone: what it did has the focus instead.
  useEffect(() => place.current?.focus(), []);
  return (
    <section className="impact" aria-label="Result" ref={place} tabIndex={-1}>
      <h3>{done.stopped ? 'Stopped' : 'Done'}</h3>
      <p>
        {counted(done.redriven, 'message')} will be delivered again.
        {done.deadAgain > 0 && ` ${grouped(done.deadAgain)} of them are dead again.`}
        {done.stopped && ' It stopped by itself: find out why before you go on.'}
      </p>
    </section>
  );
}
