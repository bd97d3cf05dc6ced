import { useNavigate } from '@tanstack/react-router';
import { subscriptionUrl, topicUrl } from '../api/client';
import { useTopicNames } from '../api/topics';
import { curl } from '../curl/curl';
import { Snippet } from '../ui/copy';

const NAME = 'workers';

/** The first minute of a work queue, with commands that work against this very gateway. */
export function QueueQuickStart({ ns, topic: given }: { ns: string; topic: string }) {
  const navigate = useNavigate();
  const topics = useTopicNames(ns, '');
  const existing = given || topics.data?.[0];
  const topic = existing ?? 'orders';
  const url = subscriptionUrl(ns, NAME);
  const json = { 'Content-Type': 'application/json' };
  const post = (path: string, body: object) =>
    curl({ method: 'POST', url: url + path, headers: json, body: JSON.stringify(body) });
  const needsTopic = topics.isSuccess && !existing;
  const create = () =>
    needsTopic
      ? navigate({ to: '/ns/$ns/topics', params: { ns }, search: { create: true } })
      : navigate({
          to: '/ns/$ns/subscriptions',
          params: { ns },
          search: { create: true, ...(given && { topic: given }) },
        });
  return (
    <ol className="steps">
      <li>
        <h2>Create a subscription</h2>
        <p>
          It makes a topic a work queue, while others go on reading the same messages.{' '}
          <button type="button" className="primary small" onClick={create}>
            {needsTopic ? 'Create its topic first' : 'Create a subscription here'}
          </button>{' '}
          or in a terminal:
        </p>
        {needsTopic && (
          <Snippet
            text={curl({ method: 'PUT', url: topicUrl(ns, topic), headers: json, body: '{"partitions":1}' })}
          />
        )}
        <Snippet
          text={curl({ method: 'PUT', url, headers: json, body: JSON.stringify({ topics: [topic] }) })}
        />
      </li>
      <li>
        <h2>Publish some work</h2>
        <Snippet
          text={curl({
            method: 'POST',
            url: `${topicUrl(ns, topic)}/messages`,
            headers: json,
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
          text={`${post(':pull', { max: 1, wait_ms: 20_000, holder: 'worker-1' })} | tee pulled.json`}
        />
      </li>
      <li>
        <h2>Say that it is done</h2>
        <p>
          Or <code>nack</code> it for another try, or give it up as <code>dead</code>.
        </p>
        <Snippet
          text={`jq '{ack: [.messages[].lease]}' pulled.json |\n  curl -sS ${url}:settle \\\n  -H 'Content-Type: application/json' --data-binary @-`}
        />
      </li>
    </ol>
  );
}
