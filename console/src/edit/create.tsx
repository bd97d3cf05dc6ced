import { useMutation } from '@tanstack/react-query';
import { type FormEvent, type ReactNode, useState } from 'react';
import { Refused } from '../api/client';
import { curl } from '../curl/curl';
import { CopyButton } from '../ui/copy';
import { Field } from '../ui/field';
import { ProblemBox } from '../ui/problem';
import type { Patch } from './changes';
import { nameError } from './name';

interface CreateProps {
  readonly noun: 'topic' | 'subscription';
  /** What the other fields say. */
  readonly body: Patch;
  /** Something is wrong with them. */
  readonly wrong: boolean;
  readonly url: (name: string) => string;
  readonly create: (name: string) => Promise<unknown>;
  /** Shows it, and tells the list. */
  readonly onCreated: (name: string) => Promise<void>;
  readonly onClose: () => void;
  /** The way to the one that has the name already. */
  readonly linkTo: (name: string) => ReactNode;
  /** Fields beside the name; `tried`: it was sent, so that everything wrong is shown. */
  readonly fields: (tried: boolean) => ReactNode;
  readonly moreLabel: string;
  /** Something is wrong in what is folded away. */
  readonly moreOpen: boolean;
  /** Folded away: what has defaults. */
  readonly more: ReactNode;
}

/** A name, the fields that matter, the rest folded away. */
export function CreateForm({ noun, body, wrong, url, onClose, fields, more, ...rest }: CreateProps) {
  const [name, setName] = useState('');
  const [tried, setTried] = useState(false);
  const badName = nameError(name);
  const create = useMutation({
    mutationFn: rest.create,
    onSuccess: (_, created) => rest.onCreated(created),
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setTried(true);
    if (!wrong && badName === null && !create.isPending) create.mutate(name);
  };
  const command = () =>
    curl({
      method: 'PUT',
      url: url(name || 'NAME'),
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
    });
  return (
    <form onSubmit={submit} noValidate>
      <div className="fields">
        <Field
          label="Name"
          mono
          autoFocus
          required
          value={name}
          error={tried || name !== '' ? badName : null}
          hint="Letters, digits and . _ ~ -"
          onChange={setName}
        />
        {fields(tried)}
      </div>
      <details className="more" open={rest.moreOpen || undefined}>
        <summary>{rest.moreLabel}</summary>
        {more}
      </details>
      {isTaken(create.error) ? (
        <div className="problem" role="alert">
          <strong>
            There is a {noun} {create.variables} already
          </strong>
          <p>Nothing was changed. Choose another name, or look at {rest.linkTo(create.variables ?? '')}.</p>
        </div>
      ) : (
        create.error && <ProblemBox error={create.error} title={`The ${noun} was not created`} />
      )}
      <div className="actions">
        <CopyButton text={command} label="Copy as curl" />
        <span className="spacer" />
        <button type="button" onClick={onClose}>
          Cancel
        </button>
        <button type="submit" className="primary" aria-disabled={create.isPending}>
          {create.isPending ? 'Creating …' : `Create ${noun}`}
        </button>
      </div>
    </form>
  );
}

/** One of that name is there, as `If-None-Match` asks. */
const isTaken = (error: Error | null) => error instanceof Refused && error.problem.status === 412;
