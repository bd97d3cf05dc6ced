// Publishes, pulls and settles with the types of openapi-typescript, through openapi-fetch.
import createClient from 'openapi-fetch';
import type { paths } from './generated/openapi-typescript.js';

const name = process.argv[2] as string;
const client = createClient<paths>({ baseUrl: process.env['WEIR_URL'] as string });
const topic = { path: { ns: 'default', topic: name }, header: { 'Message-Key': 'k' } };
const published = await client.POST('/v1/ns/{ns}/topics/{topic}/messages', { params: topic, body: { order: 7 } });
if (published.data === undefined || published.data.duplicate) throw new Error(JSON.stringify(published.error));
const params = { path: { ns: 'default', subscription: name } };
const pulled = await client.POST('/v1/ns/{ns}/subscriptions/{subscription}:pull', {
  params,
  body: { max: 1, wait_ms: 5000 },
});
const delivery = pulled.data?.messages[0];
if (delivery?.key !== 'k' || JSON.stringify(delivery.data) !== '{"order":7}') throw new Error(JSON.stringify(pulled));
const settled = await client.POST('/v1/ns/{ns}/subscriptions/{subscription}:settle', {
  params,
  body: { ack: [delivery.lease] },
});
if (settled.data?.results[0]?.result !== 'ok') throw new Error(JSON.stringify(settled));
