/** What the fields of a form share: what was typed, what is wrong with it, and whom to tell of a change. */
export interface FieldsProps<D, E> {
  readonly draft: D;
  readonly errors: E;
  readonly onChange: (draft: D) => void;
}

/** Changes one field of a draft. */
export const setter =
  <D, E>({ draft, onChange }: Pick<FieldsProps<D, E>, 'draft' | 'onChange'>) =>
  <K extends keyof D>(field: K, value: D[K]) =>
    onChange({ ...draft, [field]: value });

interface Asked {
  readonly isPending: boolean;
  readonly reset: () => void;
}

/**
 * Takes a new draft: what was counted, or done, holds only for the draft it was asked with. What is being done just now
 * stays, for its outcome must be told.
 */
export const renewing =
  <D>(count: Asked, acts: readonly Asked[], take: (draft: D) => void) =>
  (draft: D) => {
    if (!acts.some(({ isPending }) => isPending)) for (const each of [count, ...acts]) each.reset();
    take(draft);
  };
