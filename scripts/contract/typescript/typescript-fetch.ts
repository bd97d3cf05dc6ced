// Publishes, pulls and settles with the client of openapi-generator's typescript-fetch.
import { Configuration, MessagesApi, QueuesApi, SettleOutcome } from './generated/typescript-fetch/index.js';

const name = process.argv[2] as string;
const configuration = new Configuration({ basePath: process.env['WEIR_URL'] as string });
const order = { ns: 'default', topic: name, messageKey: 'k', requestBody: { order: 7 } };
const published = await new MessagesApi(configuration).publishMessage(order);
if (published == null || published.duplicate) throw new Error('a duplicate');
const queues = new QueuesApi(configuration);
const of = { ns: 'default', subscription: name };
const [delivery] = (await queues.pullMessages({ ...of, pull: { max: 1, waitMs: 5000 } })).messages;
if (delivery?.key !== 'k' || JSON.stringify(delivery.data) !== '{"order":7}') throw new Error(JSON.stringify(delivery));
const settled = await queues.settleMessages({ ...of, settle: { ack: [delivery.lease] } });
if (settled.results[0]?.result !== SettleOutcome.SETTLE_OUTCOME_OK) throw new Error(JSON.stringify(settled));
