import { useMutation } from '@tanstack/react-query';
import { type FormEvent, type ReactNode, useState } from 'react';
import { curl } from '../curl/curl';
import { CopyButton } from '../ui/copy';
import { Sheet } from '../ui/dialog';
import { Field } from '../ui/field';
import { ProblemBox } from '../ui/problem';

interface RemoveProps {
  readonly noun: 'topic' | 'subscription';
  readonly name: string;
  readonly url: string;
  readonly open: boolean;
  readonly onClose: () => void;
  readonly remove: () => Promise<unknown>;
  /** Goes where it is not missed, and forgets it. */
  readonly onRemoved: () => Promise<void>;
  /** What will be lost. */
  readonly children: ReactNode;
}

/** Says what will be lost, and acts only after the name was typed. */
export function RemoveSheet({ open, ...rest }: RemoveProps) {
  return (
    <Sheet title={`Delete ${rest.name}?`} open={open} onClose={rest.onClose} alert>
      <RemoveForm {...rest} />
    </Sheet>
  );
}

function RemoveForm({ noun, name, url, onClose, children, ...rest }: Omit<RemoveProps, 'open'>) {
  const [typed, setTyped] = useState('');
  const remove = useMutation({ mutationFn: rest.remove, onSuccess: rest.onRemoved });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (typed === name) remove.mutate();
  };
  return (
    <form onSubmit={submit}>
      <p>{children}</p>
      <Field
        label={`Type the ${noun}’s name to confirm`}
        mono
        autoFocus
        value={typed}
        hint={name}
        onChange={setTyped}
      />
      {remove.error && <ProblemBox error={remove.error} title={`The ${noun} was not deleted`} />}
      <div className="actions">
        <CopyButton text={curl({ method: 'DELETE', url })} label="Copy as curl" />
        <span className="spacer" />
        <button type="button" onClick={onClose}>
          Cancel
        </button>
        <button type="submit" className="danger" disabled={typed !== name || remove.isPending}>
          Delete {noun}
        </button>
      </div>
    </form>
  );
}
