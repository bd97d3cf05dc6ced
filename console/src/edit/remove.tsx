import { useMutation } from '@tanstack/react-query';
import { type FormEvent, type ReactNode, useState } from 'react';
import { Refused } from '../api/client';
import { curl } from '../curl/curl';
import { CopyButton } from '../ui/copy';
import { Sheet } from '../ui/dialog';
import { Field } from '../ui/field';
import { ProblemBox } from '../ui/problem';
import { changes } from './changes';
import { Diff } from './diff';
import type { Version } from './editor';

/** A configuration as it was read, and of which life it is: one made anew under the same name has another. */
export interface Found<C> extends Version<C> {
  readonly life: number;
}

interface RemoveProps<C extends object> {
  readonly noun: 'topic' | 'subscription';
  readonly name: string;
  readonly url: string;
  /** What there is, as it was read last. */
  readonly latest: Found<C>;
  readonly open: boolean;
  readonly onClose: () => void;
  /** Deletes the life and version that the tag names. */
  readonly remove: (etag: string) => Promise<unknown>;
  /** Another life or version is there: reads it. */
  readonly onStale: () => void;
  /** Goes where it is not missed, and forgets it. */
  readonly onRemoved: () => Promise<void>;
  /** What will be lost. */
  readonly children: ReactNode;
}

/** Says what will be lost, and acts only after the name was typed. */
export function RemoveSheet<C extends object>({ open, ...rest }: RemoveProps<C>) {
  return (
    <Sheet title={`Delete ${rest.name}?`} open={open} onClose={rest.onClose} alert>
      <RemoveForm {...rest} />
    </Sheet>
  );
}

function RemoveForm<C extends object>(props: Omit<RemoveProps<C>, 'open'>) {
  const { noun, name, url, latest, onClose, children, ...rest } = props;
  const [typed, setTyped] = useState('');
  // What is read later is not what the name was typed for.
  const [meant, setMeant] = useState(latest);
  const isMoved = latest.etag !== meant.etag;
  const remove = useMutation({
    mutationFn: () => rest.remove(meant.etag),
    onSuccess: rest.onRemoved,
    onError: (error) => isStale(error) && rest.onStale(),
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (typed === name && !isMoved && !remove.isPending) remove.mutate();
  };
  const goOn = () => {
    setMeant(latest);
    setTyped('');
    remove.reset();
  };
  return (
    <form onSubmit={submit}>
      <p>{children}</p>
      <Field
        // Begun anew, it has the focus that goes with the button.
        key={meant.etag}
        label={`Type the ${noun}’s name to confirm`}
        mono
        autoFocus
        value={typed}
        hint={name}
        onChange={setTyped}
      />
      {isMoved ? (
        <Moved noun={noun} meant={meant} latest={latest} onGoOn={goOn} />
      ) : (
        remove.error && <ProblemBox error={remove.error} title={`The ${noun} was not deleted`} />
      )}
      <div className="actions">
        <CopyButton
          text={curl({ method: 'DELETE', url, headers: { 'If-Match': meant.etag } })}
          label="Copy as curl"
        />
        <span className="spacer" />
        <button type="button" onClick={onClose}>
          Cancel
        </button>
        <button
          type="submit"
          className="danger"
          disabled={typed !== name}
          // Not disabled once it may be pressed: it would lose the focus.
          aria-disabled={isMoved || remove.isPending}
        >
          Delete {noun}
        </button>
      </div>
    </form>
  );
}

/** Another version, or another life. */
const isStale = (error: Error) => error instanceof Refused && [410, 412].includes(error.problem.status);

interface MovedProps<C> {
  readonly noun: string;
  readonly meant: Found<C>;
  readonly latest: Found<C>;
  readonly onGoOn: () => void;
}

/** It is not any more what the reader was shown: how it differs, and the way to go on with what there is. */
function Moved<C extends object>({ noun, meant, latest, onGoOn }: MovedProps<C>) {
  const isAnew = latest.life !== meant.life;
  return (
    <div className="problem" role="alert">
      <strong>{isAnew ? 'Deleted and made anew meanwhile' : 'Changed meanwhile by someone else'}</strong>
      <p>
        Nothing was deleted.{' '}
        {isAnew
          ? `What has this name now is another ${noun}; what is said above is of that one.`
          : `Version ${latest.version} differs from version ${meant.version}, which you were shown:`}
      </p>
      <Diff list={changes(meant.config, latest.config)} />
      <div className="actions">
        <button type="button" onClick={onGoOn}>
          {isAnew ? 'Go on with the new one' : `Go on with version ${latest.version}`}
        </button>
      </div>
    </div>
  );
}
