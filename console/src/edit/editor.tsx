import { useMutation } from '@tanstack/react-query';
import { useBlocker } from '@tanstack/react-router';
import { type FormEvent, type ReactNode, useRef, useState } from 'react';
import { Refused } from '../api/client';
import { curl } from '../curl/curl';
import { CopyButton } from '../ui/copy';
import { ProblemBox } from '../ui/problem';
import { changes, type Patch, patchOf, rebase } from './changes';
import { Diff } from './diff';
import type { FieldsProps } from './draft';

/** A configuration as it was read. */
export interface Version<C> {
  readonly config: C;
  readonly version: number;
  /** Names it, for `If-Match`. */
  readonly etag: string;
}

interface EditorProps<C extends object, D, E extends object> {
  /** The version that the form begins with. */
  readonly first: Version<C>;
  /** The version as it was read last. */
  readonly latest: Version<C>;
  readonly url: string;
  readonly draftOf: (config: C) => D;
  /** `base` with what the form says, or what is wrong with each field. */
  readonly readDraft: (draft: D, base: C) => { config: C; errors: E };
  /** Changes the version that the tag names, and tells of the change. */
  readonly save: (etag: string, patch: Patch) => Promise<Version<C>>;
  readonly read: () => Promise<Version<C>>;
  readonly children: (fields: FieldsProps<D, E>) => ReactNode;
}

/**
 * A form beside its differences, applied with the tag of the version it began with. What is read later never changes
 * what is being typed.
 */
export function ConfigEditor<C extends object, D, E extends object>(props: EditorProps<C, D, E>) {
  const review = useRef<HTMLElement>(null);
  // Buttons that are pressed here are disabled or gone next, and would take the focus with them.
  const keepFocus = () => {
    if (review.current?.contains(document.activeElement)) review.current.focus();
  };
  const editing = useEditing(props, keepFocus);
  const { base, config, list, wrong, conflict, applied, save, begin } = editing;
  useLeaveGuard(list.length > 0);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (wrong || list.length === 0) return;
    keepFocus();
    save.mutate();
  };
  const patchRequest = {
    method: 'PATCH' as const,
    url: props.url,
    headers: { 'Content-Type': 'application/json', 'If-Match': base.etag },
    body: JSON.stringify(patchOf(list)),
  };
  return (
    <form className="tab-body config" onSubmit={submit} noValidate>
      <div className="config-fields">{props.children(editing.fields)}</div>
      <aside className="config-review" aria-label="Changes" ref={review} tabIndex={-1}>
        <h2>Changes</h2>
        {list.length === 0 && !wrong && (
          <p className="faint" role="status">
            {applied > 0
              ? `Applied. This is version ${base.version}.`
              : `None. This is version ${base.version}.`}
          </p>
        )}
        {wrong && <p className="note bad">Correct the marked fields first.</p>}
        <Diff list={list} />
        {conflict ? (
          <Conflict base={base} mine={config} theirs={conflict} onBegin={begin} />
        ) : (
          save.error && <ProblemBox error={save.error} title="The configuration was not changed" />
        )}
        <div className="actions">
          <CopyButton label="Copy as curl" text={curl(patchRequest)} />
          <span className="spacer" />
          <button
            type="button"
            disabled={list.length === 0 && !wrong}
            onClick={() => begin(base, base.config)}
          >
            Reset
          </button>
          <button
            type="submit"
            className="primary"
            disabled={wrong || list.length === 0 || save.isPending || conflict !== null}
          >
            {list.length > 1 ? `Apply ${list.length} changes` : 'Apply'}
          </button>
        </div>
      </aside>
    </form>
  );
}

/** What is typed, on which version, and how it is applied. `onBegin` is told before the form begins anew. */
function useEditing<C extends object, D, E extends object>(props: EditorProps<C, D, E>, onBegin: () => void) {
  const { first, latest, draftOf, readDraft } = props;
  const [base, setBase] = useState(first);
  const [draft, setDraft] = useState(() => draftOf(first.config));
  const [conflict, setConflict] = useState<Version<C> | null>(null);
  const [applied, setApplied] = useState(0);
  const { config, errors } = readDraft(draft, base.config);
  const list = changes(base.config, config);
  const wrong = Object.keys(errors).length > 0;

  const begin = (from: Version<C>, values: C) => {
    onBegin();
    setBase(from);
    setDraft(draftOf(values));
    setConflict(null);
    save.reset();
  };
  const save = useMutation({
    mutationFn: () => props.save(base.etag, patchOf(list)),
    onSuccess: (now) => {
      begin(now, now.config);
      setApplied(list.length);
    },
    onError: async (error) => {
      if (error instanceof Refused && error.problem.status === 412) setConflict(await props.read());
    },
  });
  // Untouched, the form follows what others change.
  if (list.length === 0 && !wrong && !conflict && latest.etag !== base.etag && !save.isPending) {
    setBase(latest);
    setDraft(draftOf(latest.config));
  }
  const onChange = (next: D) => {
    setApplied(0);
    setDraft(next);
  };
  const fields: FieldsProps<D, E> = { draft, errors, onChange };
  return { base, fields, config, list, wrong, conflict, applied, save, begin };
}

/** Asks before what was typed is left behind. */
function useLeaveGuard(changed: boolean) {
  useBlocker({
    shouldBlockFn: ({ current, next }) =>
      changed && current.pathname !== next.pathname && !confirm('Leave without applying the changes?'),
    enableBeforeUnload: () => changed,
  });
}

interface ConflictProps<C> {
  readonly base: Version<C>;
  readonly mine: C;
  readonly theirs: Version<C>;
  readonly onBegin: (from: Version<C>, values: C) => void;
}

/** Someone else was faster: both changes are shown, and nothing typed is lost. */
function Conflict<C extends object>({ base, mine, theirs, onBegin }: ConflictProps<C>) {
  const others = changes(base.config, theirs.config);
  const own = new Set(changes(base.config, mine).map(({ field }) => field));
  const both = others.filter(({ field }) => own.has(field)).map(({ field }) => field);
  const merged = rebase(base.config, mine, theirs.config);
  return (
    <div className="problem" role="alert">
      <strong>Changed meanwhile by someone else</strong>
      <p>
        Nothing of yours was applied (412, <code>version_mismatch</code>). Version {theirs.version} differs
        from the one you began with:
      </p>
      <Diff list={others} />
      {both.length > 0 && (
        <p>
          You both changed <code>{both.join(', ')}</code>.
        </p>
      )}
      <div className="actions">
        <button type="button" onClick={() => onBegin(theirs, theirs.config)}>
          Drop mine
        </button>
        <button type="button" className="primary" onClick={() => onBegin(theirs, merged)}>
          Put mine on top
        </button>
      </div>
    </div>
  );
}
