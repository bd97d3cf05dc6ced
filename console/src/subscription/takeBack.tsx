import type { ReactNode } from 'react';

interface TakeBackProps {
  /** What can be taken back. */
  readonly what: string;
  /** The subscription's namespace and name. */
  readonly ns: string;
  readonly name: string;
  readonly undo: string;
  /** The button that does it. */
  readonly children: ReactNode;
}

/** Says that a seek or purge can be taken back, here or in a terminal. */
export function TakeBack({ what, ns, name, undo, children }: TakeBackProps) {
  return (
    <p className="note">
      {what} can be taken back, also with{' '}
      <code>
        weir subscription undo {name} {undo}
        {ns !== 'default' && ` --ns ${ns}`}
      </code>{' '}
      {children}
    </p>
  );
}
