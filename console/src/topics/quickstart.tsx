import { useNavigate } from '@tanstack/react-router';
import { lazy, Suspense } from 'react';
import { origin, socketUrl, topicUrl } from '../api/client';
import { chunk } from '../app/chunk';
import { useNamespace } from '../app/shell';
import { curl } from '../curl/curl';
import { Snippet } from '../ui/copy';
import { browserSnippet } from './snippet';

const QueueQuickStart = lazy(
  chunk(async () => ({ default: (await import('../subscriptions/quickstart')).QueueQuickStart })),
);

const NAME = 'orders';

export function QuickStartPage() {
  const ns = useNamespace();
  return (
    <div className="page narrow">
      <h1>Quick start</h1>
      <QuickStart ns={ns} />
      <h1>Work queues</h1>
      <p className="lead">Each message to one of many workers, and again until it is acknowledged.</p>
      <Suspense>
        <QueueQuickStart ns={ns} topic="" />
      </Suspense>
    </div>
  );
}

/** The first minute, with commands that work against this very gateway. */
export function QuickStart({ ns }: { ns: string }) {
  const navigate = useNavigate();
  const url = topicUrl(ns, NAME);
  const json = { 'Content-Type': 'application/json' };
  const create = () => navigate({ to: '/ns/$ns/topics', params: { ns }, search: { create: true } });
  return (
    <ol className="steps">
      <li>
        <h2>Create a topic</h2>
        <p>
          A topic keeps messages in order, for as long as you say.{' '}
          <button type="button" className="primary small" onClick={create}>
            Create a topic here
          </button>{' '}
          or in a terminal:
        </p>
        <Snippet text={curl({ method: 'PUT', url, headers: json, body: '{"partitions":1}' })} />
      </li>
      <li>
        <h2>Follow it</h2>
        <p>In a second terminal. Every message shows up here the moment it is safe.</p>
        <Snippet
          text={curl({
            url: `${url}/messages?from=earliest`,
            headers: { Accept: 'text/event-stream' },
            streaming: true,
          })}
        />
      </li>
      <li>
        <h2>Publish</h2>
        <p>
          The answer comes once the message is on disk, with its offset and how long each stage took in{' '}
          <code>Server-Timing</code>.
        </p>
        <Snippet
          text={curl({
            method: 'POST',
            url: `${url}/messages`,
            headers: { ...json, 'Message-Key': 'cust-42' },
            body: '{"item":"tea","qty":2}',
          }).replace('-sS', '-sSi')}
        />
      </li>
      <li>
        <h2>In a browser</h2>
        <p>
          Over WebSocket, without a library: paste it into this page’s developer console. The gateway sends no
          more than the limit allows, which the page raises as it takes messages.
        </p>
        <Snippet text={browserSnippet(socketUrl(), ns, NAME)} />
      </li>
      <li>
        <h2>Everything else</h2>
        <p>
          The whole API, as OpenAPI:{' '}
          <a href={`${origin()}/openapi.json`} target="_blank" rel="noreferrer">
            /openapi.json
          </a>
        </p>
      </li>
    </ol>
  );
}
