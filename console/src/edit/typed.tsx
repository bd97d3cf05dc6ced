import { type FormEvent, type ReactNode, useEffect, useRef, useState } from 'react';
import { Field } from '../ui/field';
import { ProblemBox } from '../ui/problem';

interface TypedProps {
  readonly noun: 'topic' | 'subscription';
  readonly name: string;
  readonly action: string;
  readonly pending: boolean;
  readonly onConfirm: () => void;
  /** What it would do. */
  readonly children: ReactNode;
}

/** What something would do, and the button that does it once the name was typed. */
export function TypedImpact({ noun, name, action, pending, onConfirm, children }: TypedProps) {
  const [typed, setTyped] = useState('');
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    // It may answer a promise, which is nothing to be cleaned up.
    void place.current?.scrollIntoView({ block: 'nearest' });
  }, []);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (typed === name && !pending) onConfirm();
  };
  return (
    <section className="impact" aria-label="Preview">
      {children}
      <form onSubmit={submit}>
        <Field
          label={`Type the ${noun}’s name to confirm`}
          mono
          autoFocus
          value={typed}
          hint={name}
          onChange={setTyped}
        />
        <div className="actions" ref={place}>
          <span className="note">Nothing was changed so far.</span>
          <span className="spacer" />
          <button type="submit" className="danger" disabled={typed !== name} aria-disabled={pending}>
            {action}
          </button>
        </div>
      </form>
    </section>
  );
}

/** Why it was not done, or not all of it; in place of what was counted, which need not hold any more. */
export function Failed({ error, title }: { error: unknown; title: string }) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => place.current?.focus(), []);
  return (
    <div ref={place} tabIndex={-1}>
      <ProblemBox error={error} title={title} />
    </div>
  );
}

/** What was done. The button that was pressed is gone: this has the focus instead. */
export function Result({ title, children }: { title: string; children: ReactNode }) {
  const place = useRef<HTMLElement>(null);
  useEffect(() => place.current?.focus(), []);
  return (
    <section className="impact" aria-label="Result" ref={place} tabIndex={-1}>
      <h3>{title}</h3>
      {children}
    </section>
  );
}
