import type { ReactNode } from 'react';
import { curl } from '../curl/curl';
import { counted } from '../format/number';
import { CopyButton } from '../ui/copy';
import { Loading, ProblemBox } from '../ui/problem';

interface Listed {
  readonly isSuccess: boolean;
  readonly isPending: boolean;
  readonly error: Error | null;
  readonly refetch: () => Promise<unknown>;
}

interface FrameProps {
  readonly title: string;
  readonly noun: 'topic' | 'subscription';
  readonly url: string;
  readonly list: Listed;
  readonly count: number;
  /** All of it was read. */
  readonly complete: boolean;
  readonly onCreate: () => void;
  readonly search: ReactNode;
  readonly children: ReactNode;
  readonly dialog: ReactNode;
}

/** A list with its head: how many there are, how to read it otherwise, how to make one more. */
export function ListFrame({ noun, list, count, complete, ...rest }: FrameProps) {
  return (
    <div className="page fill">
      <div className="page-head">
        <h1>{rest.title}</h1>
        <span className="count" role="status">
          {list.isSuccess && `${counted(count, noun)}${complete ? '' : ' read so far'}`}
        </span>
        <span className="spacer" />
        <CopyButton text={curl({ url: rest.url })} label="curl" />
        <button type="button" className="primary" onClick={rest.onCreate} aria-keyshortcuts="n">
          Create {noun} <kbd>n</kbd>
        </button>
      </div>
      {rest.search}
      {list.error && count > 0 && <ProblemBox error={list.error} onRetry={() => void list.refetch()} />}
      {rest.children}
      {rest.dialog}
    </div>
  );
}

interface EmptyProps {
  readonly list: Listed;
  readonly what: string;
  /** Nothing was found; why. */
  readonly none: string;
}

/** What stands where rows would: that they come, why they do not, or that there are none. */
export function EmptyList({ list, what, none }: EmptyProps) {
  if (list.isPending) return <Loading what={what} />;
  if (list.error) return <ProblemBox error={list.error} onRetry={() => void list.refetch()} />;
  return <p>{none}</p>;
}
