import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { Refused, type Subscription } from '../api/client';
import { asOne, peek, type ReadAt, readUrl } from '../api/messages';
import { useSubscription } from '../api/subscriptions';
import { describeTopic, totals as totalsOf } from '../api/topics';
import { useSettings } from '../app/settings';
import { curl } from '../curl/curl';
import { counted, grouped } from '../format/number';
import { instant } from '../format/time';
import { ofSeveral } from '../subscriptions/config';
import { CopyButton } from '../ui/copy';
import { Loading, ProblemBox } from '../ui/problem';
import { numeric, ScrollTable } from '../ui/table';
import { ExplainLink } from './explainLink';
import { type DeadLetter, deadLetters, groups, type Searched, searched } from './letters';
import { RedriveBar } from './redrive';

const NONE: ReadonlySet<string> = new Set();

/** Newest messages of the dead letter topic that are searched; and when more of them are wanted. */
const LOOK = 200;
const LOOK_DEEP = 1000;

export function DeadTab() {
  const { ns, subscription: name } = useParams({ from: '/ns/$ns/subscriptions/$subscription' });
  const subscription = useSubscription(ns, name).data?.subscription;
  return subscription ? <Dead key={subscription.id} subscription={subscription} /> : null;
}

function Dead({ subscription }: { subscription: Subscription }) {
  const [picked, setPicked] = useState<ReadonlySet<string>>(NONE);
  const { dlq } = subscription.config;
  return (
    <div className="tab-body">
      <RedriveBar subscription={subscription} picked={picked} onDone={() => setPicked(NONE)} />
      {dlq ? (
        <Letters subscription={subscription} dlq={dlq} picked={picked} onPick={setPicked} />
      ) : (
        <NoTopic subscription={subscription} />
      )}
    </div>
  );
}

function NoTopic({ subscription }: { subscription: Subscription }) {
  const { ns, name, totals } = subscription;
  return (
    <p>
      {totals.dead === 0
        ? 'There are no dead letters so far. '
        : `${counted(totals.dead, 'dead letter')} so far, counted and dropped. `}
      With a dead letter topic they would be kept, with why they died:{' '}
      <Link to="/ns/$ns/subscriptions/$subscription/config" params={{ ns, subscription: name }}>
        set one
      </Link>
      .
    </p>
  );
}

interface Picking {
  /** Ids of the messages to be redriven. */
  readonly picked: ReadonlySet<string>;
  readonly onPick: (picked: ReadonlySet<string>) => void;
}

interface LettersProps extends Picking {
  readonly subscription: Subscription;
  readonly dlq: string;
}

function Letters({ subscription, dlq, ...picking }: LettersProps) {
  const { ns } = subscription;
  const { reason, deep } = useSearch({ from: '/ns/$ns/subscriptions/$subscription/dead' });
  const at = { from: `tail:${deep ? LOOK_DEEP : LOOK}`, limit: deep ? LOOK_DEEP : LOOK };
  const query = useLetters(subscription, dlq, at);
  const missing = query.error instanceof Refused && query.error.problem.code === 'topic_not_found';
  const letters = query.data?.letters ?? [];
  const shown = reason === undefined ? letters : letters.filter((letter) => letter.reason === reason);
  const retry = () => void query.refetch();
  return (
    <>
      <div className="toolbar">
        <Counts subscription={subscription} dlq={dlq} found={query.data} />
        {query.data?.rest && !deep && (
          <Link to="." search={(before) => ({ ...before, deep: true })}>
            Search the newest {grouped(LOOK_DEEP)}
          </Link>
        )}
        <span className="spacer" />
        <CopyButton
          text={curl({ url: readUrl(ns, dlq, asOne(at, query.data?.partitions ?? 1)) })}
          label="curl"
        />
        <button type="button" onClick={retry}>
          Refresh
        </button>
      </div>
      {query.isPending && <Loading what="dead letters" />}
      {missing ? (
        <p className="problem" role="alert">
          <strong>There is no topic {dlq}</strong>
          Dead letters wait until there is.
        </p>
      ) : (
        query.error && <ProblemBox error={query.error} onRetry={retry} />
      )}
      {query.isSuccess && letters.length === 0 && <p>{none(subscription, query.data.rest)}</p>}
      {letters.length > 0 && <Reasons letters={letters} reason={reason} />}
      {shown.length > 0 && <LetterTable ns={ns} dlq={dlq} letters={shown} {...picking} />}
    </>
  );
}

/** Why there are none to be shown. */
function none({ totals }: Subscription, rest: boolean): string {
  if (totals.dead === 0) return 'No message was given up so far.';
  if (rest)
    return 'None of the messages that were searched is from this subscription: its own are older, or gone.';
  return 'None of them is there any more, or they are on their way.';
}

/** The newest letters of the subscription in its dead letter topic, and what was searched for them. */
function useLetters({ ns, name, totals, config }: Subscription, dlq: string, at: ReadAt) {
  const several = ofSeveral(config);
  return useQuery({
    // Read anew when another one arrived: looking has its price.
    queryKey: ['dead', ns, name, dlq, at.limit, totals.dead - totals.dead_pending],
    queryFn: async ({ signal }) => {
      const { topic } = await describeTopic(ns, dlq, signal);
      const { messages, each } = await peek(topic, at, signal);
      const partitions = topic.partitions.length;
      return {
        letters: deadLetters(messages, name, several),
        partitions,
        ...searched({ read: messages.length, of: totalsOf(topic).records, each, partitions }),
      };
    },
    placeholderData: keepPreviousData,
    staleTime: Number.POSITIVE_INFINITY,
  });
}

interface CountsProps {
  readonly subscription: Subscription;
  readonly dlq: string;
  /** What was found where; `undefined`: not known. */
  readonly found: (Searched & { readonly letters: readonly DeadLetter[] }) | undefined;
}

function Counts({ subscription: { ns, totals }, dlq, found }: CountsProps) {
  return (
    <span role="status">
      {counted(totals.dead, 'dead letter')} so far
      {totals.dead_pending > 0 && `, ${grouped(totals.dead_pending)} on the way`}
      {found !== undefined && totals.dead > 0 && (
        <span className="faint">
          {' '}
          · {grouped(found.letters.length)} found. Searched: {found.what} of{' '}
          <Link to="/ns/$ns/topics/$topic/messages" params={{ ns, topic: dlq }} className="mono">
            {dlq}
          </Link>
          {found.rest && ', where older ones are'}
        </span>
      )}
    </span>
  );
}

interface ReasonsProps {
  readonly letters: readonly DeadLetter[];
  /** The only one that is shown. */
  readonly reason: string | undefined;
}

/** Why they died, to choose one of. */
function Reasons({ letters, reason }: ReasonsProps) {
  const navigate = useNavigate({ from: '/ns/$ns/subscriptions/$subscription/dead' });
  const choose = (next: string | undefined) => void navigate({ search: (s) => ({ ...s, reason: next }) });
  return (
    <section aria-labelledby="reasons">
      <h2 id="reasons">Why</h2>
      <ul className="reasons">
        {groups(letters).map((group) => (
          <li key={group.reason}>
            <button
              type="button"
              className="chip"
              aria-pressed={reason === group.reason}
              onClick={() => choose(reason === group.reason ? undefined : group.reason)}
            >
              <bdi>{group.reason}</bdi> <strong>{grouped(group.count)}</strong>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

interface TableProps extends Picking {
  readonly ns: string;
  readonly dlq: string;
  readonly letters: readonly DeadLetter[];
}

function LetterTable({ ns, dlq, letters, picked, onPick }: TableProps) {
  const all = letters.every(({ message }) => picked.has(message));
  const pick = (messages: readonly string[], on: boolean) => {
    const next = new Set(picked);
    for (const message of messages) {
      if (on) next.add(message);
      else next.delete(message);
    }
    onPick(next);
  };
  return (
    <ScrollTable
      label="Dead letters, newest first"
      heads={[
        <td key="pick">
          <input
            type="checkbox"
            aria-label="Pick all that are shown"
            checked={all}
            onChange={({ target }) =>
              pick(
                letters.map(({ message }) => message),
                target.checked,
              )
            }
          />
        </td>,
        'Message',
        'Why',
        numeric('Attempts'),
        'Died',
        'Key',
        'Body',
        'Letter',
        'Now',
      ]}
    >
      {letters.map((letter) => (
        <LetterRow
          key={letter.id}
          ns={ns}
          dlq={dlq}
          letter={letter}
          picked={picked.has(letter.message)}
          onPick={(on) => pick([letter.message], on)}
        />
      ))}
    </ScrollTable>
  );
}

interface RowProps {
  readonly ns: string;
  readonly dlq: string;
  readonly letter: DeadLetter;
  readonly picked: boolean;
  readonly onPick: (on: boolean) => void;
}

function LetterRow({ ns, dlq, letter, picked, onPick }: RowProps) {
  const { zone } = useSettings();
  return (
    <tr>
      <td>
        <input
          type="checkbox"
          aria-label={`Pick ${letter.message}`}
          checked={picked}
          onChange={({ target }) => onPick(target.checked)}
        />
      </td>
      <th scope="row">
        <Link
          to="/ns/$ns/topics/$topic/messages"
          params={{ ns, topic: letter.topic }}
          search={{ open: letter.origin }}
          className="mono"
        >
          {letter.topic} {letter.origin}
        </Link>
      </th>
      <td className="clip" title={letter.reason}>
        {letter.reason}
      </td>
      <td className="numeric">{letter.attempts}</td>
      <td className="mono faint">{instant(letter.ts, zone)}</td>
      <td className="mono">{letter.key ?? <span className="faint">–</span>}</td>
      <td className="mono clip rest">{letter.preview}</td>
      <td>
        <Link
          to="/ns/$ns/topics/$topic/messages"
          params={{ ns, topic: dlq }}
          search={{ open: letter.id }}
          className="mono"
        >
          {letter.id}
        </Link>
      </td>
      <td>
        <ExplainLink id={letter.message} />
      </td>
    </tr>
  );
}
