import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useBlocker, useParams } from '@tanstack/react-router';
import { type FormEvent, useRef, useState } from 'react';
import { Refused, type TopicConfig, topicUrl } from '../api/client';
import { changeTopic, type Described, describeTopic, topicKey, useTopic } from '../api/topics';
import { curl } from '../curl/curl';
import { type Change, changes, draftOf, patchOf, readDraft, rebase } from '../topics/config';
import { ClosedField, OtherFields, RetentionFields, SafetyFields } from '../topics/fields';
import { CopyButton } from '../ui/copy';
import { ProblemBox } from '../ui/problem';

export function ConfigTab() {
  const { ns, topic } = useParams({ from: '/ns/$ns/topics/$topic' });
  const { data } = useTopic(ns, topic);
  // The form keeps the version it began with: what is read later never changes what is being typed.
  return data ? (
    <ConfigForm key={data.topic.incarnation} ns={ns} name={topic} first={data} latest={data} />
  ) : null;
}

interface FormProps {
  readonly ns: string;
  readonly name: string;
  readonly first: Described;
  readonly latest: Described;
}

function ConfigForm({ ns, name, first, latest }: FormProps) {
  const client = useQueryClient();
  const [base, setBase] = useState(first);
  const [draft, setDraft] = useState(() => draftOf(first.topic.config));
  const [conflict, setConflict] = useState<Described | null>(null);
  const [applied, setApplied] = useState(0);
  const { config, errors } = readDraft(draft, base.topic.config);
  const list = changes(base.topic.config, config);
  const body = JSON.stringify(patchOf(list));
  const wrong = Object.keys(errors).length > 0;

  const review = useRef<HTMLElement>(null);
  // Buttons that are pressed here are disabled or gone next, and would take the focus with them.
  const keepFocus = () => {
    if (review.current?.contains(document.activeElement)) review.current.focus();
  };
  const begin = (from: Described, values: TopicConfig) => {
    keepFocus();
    setBase(from);
    setDraft(draftOf(values));
    setConflict(null);
    save.reset();
  };
  const save = useMutation({
    mutationFn: () => changeTopic(ns, name, base.etag, patchOf(list)),
    onSuccess: (now) => {
      client.setQueryData(topicKey(ns, name), now);
      begin(now, now.topic.config);
      setApplied(list.length);
    },
    onError: async (error) => {
      if (error instanceof Refused && error.problem.status === 412)
        setConflict(await describeTopic(ns, name));
    },
  });
  // Untouched, the form follows what others change.
  if (list.length === 0 && !wrong && !conflict && latest.etag !== base.etag && !save.isPending) {
    setBase(latest);
    setDraft(draftOf(latest.topic.config));
  }
  useBlocker({
    shouldBlockFn: ({ current, next }) =>
      list.length > 0 &&
      current.pathname !== next.pathname &&
      !confirm('Leave without applying the changes?'),
    enableBeforeUnload: () => list.length > 0,
  });

  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (wrong || list.length === 0) return;
    keepFocus();
    save.mutate();
  };
  const fields = {
    draft,
    errors,
    onChange: (next: typeof draft) => {
      setApplied(0);
      setDraft(next);
    },
  };
  return (
    <form className="tab-body config" onSubmit={submit} noValidate>
      <div className="config-fields">
        <h2>Safety</h2>
        <SafetyFields {...fields} />
        <h2>Retention</h2>
        <RetentionFields {...fields} />
        <h2>Messages</h2>
        <OtherFields {...fields} />
        <ClosedField {...fields} />
      </div>
      <aside className="config-review" aria-label="Changes" ref={review} tabIndex={-1}>
        <h2>Changes</h2>
        {list.length === 0 && !wrong && (
          <p className="faint" role="status">
            {applied > 0
              ? `Applied. This is version ${base.topic.version}.`
              : `None. This is version ${base.topic.version}.`}
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
          <CopyButton
            label="Copy as curl"
            text={curl({
              method: 'PATCH',
              url: topicUrl(ns, name),
              headers: { 'Content-Type': 'application/json', 'If-Match': base.etag },
              body,
            })}
          />
          <span className="spacer" />
          <button
            type="button"
            disabled={list.length === 0 && !wrong}
            onClick={() => begin(base, base.topic.config)}
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

const shown = (value: unknown) => (value === null ? 'not set' : String(value));

function Diff({ list }: { list: readonly Change[] }) {
  if (list.length === 0) return null;
  return (
    <ul className="diff">
      {list.map(({ field, before, after }) => (
        <li key={field}>
          <code>{field}</code>
          <del>{shown(before)}</del>
          <ins>{shown(after)}</ins>
        </li>
      ))}
    </ul>
  );
}

interface ConflictProps {
  readonly base: Described;
  readonly mine: TopicConfig;
  readonly theirs: Described;
  readonly onBegin: (from: Described, values: TopicConfig) => void;
}

/** Someone else was faster: both changes are shown, and nothing typed is lost. */
function Conflict({ base, mine, theirs, onBegin }: ConflictProps) {
  const others = changes(base.topic.config, theirs.topic.config);
  const own = new Set(changes(base.topic.config, mine).map(({ field }) => field));
  const both = others.filter(({ field }) => own.has(field)).map(({ field }) => field);
  const merged = rebase(base.topic.config, mine, theirs.topic.config);
  return (
    <div className="problem" role="alert">
      <strong>Changed meanwhile by someone else</strong>
      <p>
        Nothing of yours was applied (412, <code>version_mismatch</code>). Version {theirs.topic.version}{' '}
        differs from the one you began with:
      </p>
      <Diff list={others} />
      {both.length > 0 && (
        <p>
          You both changed <code>{both.join(', ')}</code>.
        </p>
      )}
      <div className="actions">
        <button type="button" onClick={() => onBegin(theirs, theirs.topic.config)}>
          Drop mine
        </button>
        <button type="button" className="primary" onClick={() => onBegin(theirs, merged)}>
          Put mine on top
        </button>
      </div>
    </div>
  );
}
