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

/** Takes a new draft: what was counted, or done, holds only for the draft it was asked with. */
export const renewing =
  <D>(asked: readonly { reset: () => void }[], take: (draft: D) => void) =>
  (draft: D) => {
    for (const each of asked) each.reset();
    take(draft);
  };
