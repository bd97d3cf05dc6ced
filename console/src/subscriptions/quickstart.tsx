import { useNavigate } from '@tanstack/react-router';
import { subscriptionUrl, topicUrl } from '../api/client';
import { useTopicNames } from '../api/topics';
import { curl, quoted } from '../curl/curl';
import { Snippet } from '../ui/copy';

const NAME = 'workers';

const JSON_TYPE = { 'Content-Type': 'application/json' };

interface QuickStartProps {
  readonly ns: string;
  /** The topic that it was asked for; empty if it was not. */
  readonly topic: string;
}

/** The first minute of a work queue, with commands that work against this very gateway. */
export function QueueQuickStart({ ns, topic: given }: QuickStartProps) {
  const topics = useTopicNames(ns, '');
  const existing = given || topics.data?.[0];
  const topic = existing ?? 'orders';
  const url = subscriptionUrl(ns, NAME);
  const pull = { max: 1, wait_ms: 20_000, holder: 'worker-1' };
  return (
    <ol className="steps">
      <CreateStep ns={ns} topic={topic} given={given} needsTopic={topics.isSuccess && !existing} />
      <li>
        <h2>Publish some work</h2>
        <Snippet
          text={curl({
            method: 'POST',
            url: `${topicUrl(ns, topic)}/messages`,
            headers: JSON_TYPE,
            body: '{"send":"invoice","to":"cust-42"}',
          })}
        />
      </li>
      <li>
        <h2>Take it</h2>
        <p>
          Waits up to 20 s for a message. It is leased to this worker for 30 s, and comes again unless it is
          acknowledged.
        </p>
        <Snippet
          text={`${curl({ method: 'POST', url: `${url}:pull`, headers: JSON_TYPE, body: JSON.stringify(pull) })} | tee pulled.json`}
        />
      </li>
      <li>
        <h2>Say that it is done</h2>
        <p>
          Or <code>nack</code> it for another try, or give it up as <code>dead</code>.
        </p>
        <Snippet
          text={`jq '{ack: [.messages[].lease]}' pulled.json |\n  curl -sS ${quoted(`${url}:settle`)} \\\n  -H 'Content-Type: application/json' --data-binary @-`}
        />
      </li>
    </ol>
  );
}

interface CreateStepProps {
  readonly ns: string;
  readonly topic: string;
  readonly given: string;
  /** There is no topic at all. */
  readonly needsTopic: boolean;
}

function CreateStep({ ns, topic, given, needsTopic }: CreateStepProps) {
  const navigate = useNavigate();
  const create = () =>
    needsTopic
      ? navigate({ to: '/ns/$ns/topics', params: { ns }, search: { create: true } })
      : navigate({
          to: '/ns/$ns/subscriptions',
          params: { ns },
          search: { create: true, ...(given && { topic: given }) },
        });
  const put = (url: string, body: object) =>
    curl({ method: 'PUT', url, headers: JSON_TYPE, body: JSON.stringify(body) });
  return (
    <li>
      <h2>Create a subscription</h2>
      <p>
        It makes a topic a work queue, while others go on reading the same messages.{' '}
        <button type="button" className="primary small" onClick={create}>
          {needsTopic ? 'Create its topic first' : 'Create a subscription here'}
        </button>{' '}
        or in a terminal:
      </p>
      {needsTopic && <Snippet text={put(topicUrl(ns, topic), { partitions: 1 })} />}
      <Snippet text={put(subscriptionUrl(ns, NAME), { topics: [topic] })} />
    </li>
  );
}
