import { useLayoutEffect, useRef } from 'react';
import { outcomeOf, type Problem, Refused, Unreachable } from '../api/client';

interface ProblemBoxProps {
  readonly error: unknown;
  readonly onRetry?: (() => void) | undefined;
  /** Says that there was no effect; not shown where that is not known. */
  readonly title?: string | undefined;
}

const EFFECT: Record<Problem['outcome'], string> = {
  none: 'Nothing was changed.',
  applied: 'The change took effect all the same.',
  unknown: 'It is not known whether it took effect: look before you repeat it.',
};

/** What went wrong, whether it had an effect, and what can be done: never just "something". */
export function ProblemBox({ error, onRetry, title: whenNone }: ProblemBoxProps) {
  const outcome = outcomeOf(error);
  const title = outcome === 'none' ? whenNone : undefined;
  const retry = onRetry && <Retry onRetry={onRetry} />;
  if (error instanceof Refused) return <RefusedBox error={error} retry={retry} title={title} />;
  const unreachable = error instanceof Unreachable;
  return (
    <div className="problem" role="alert">
      <strong>
        {title ?? (unreachable ? 'The gateway cannot be reached' : 'The console met an error of its own')}
      </strong>
      <p>{unreachable ? `There was ${error.message}.` : String(error)}</p>
      <p>{EFFECT[outcome]}</p>
      {retry}
    </div>
  );
}

function Retry({ onRetry }: { onRetry: () => void }) {
  const button = useRef<HTMLButtonElement>(null);
  // It goes with the error, once there is what it asked for.
  useLayoutEffect(() => {
    const own = button.current;
    return () => {
      if (own && own === document.activeElement) passFocus(own);
    };
  }, []);
  return (
    <button type="button" ref={button} onClick={onRetry}>
      Try again
    </button>
  );
}

/** The focus of an element that goes now is given to what it stands in: a list, a dialog, or the page. */
function passFocus(from: HTMLElement) {
  const place = from.closest<HTMLElement>('[role=grid], [role=dialog], [role=alertdialog], main');
  queueMicrotask(() => place?.focus());
}

function RefusedBox(props: { error: Refused; retry: React.ReactNode; title: string | undefined }) {
  const { error, retry, title } = props;
  const { problem } = error;
  const seconds = problem.retry_after_ms ? Math.ceil(problem.retry_after_ms / 1000) : null;
  return (
    <div className="problem" role="alert">
      <strong>{title ?? problem.title}</strong>
      <p>{problem.detail || problem.title}</p>
      {problem.missing_grant && (
        <p>
          Missing grant: <code>{problem.missing_grant}</code>
        </p>
      )}
      <p>
        {EFFECT[outcomeOf(error)]}
        {problem.retryable && ` A retry may succeed${seconds ? ` in ${seconds} s` : ''}.`}
      </p>
      {problem.undo && (
        <p>
          What it did can be taken back: <code>{problem.undo}</code>
        </p>
      )}
      <p className="problem-code">
        <code>{problem.code}</code> · {problem.status}
        {problem.field && (
          <>
            {' '}
            · field <code>{problem.field}</code>
          </>
        )}
        {problem.request_id && ` · request ${problem.request_id}`}
      </p>
      {retry}
    </div>
  );
}

/** A page that has no data yet. */
export function Loading({ what }: { what: string }) {
  return (
    <p className="loading" role="status">
      Loading {what} …
    </p>
  );
}
