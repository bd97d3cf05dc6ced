// Queue: HTTP publishes at a constant arrival rate to a topic of two partitions, while workers pull, fail some, give some
// up and acknowledge the rest. At the end the queue is drained, and every confirmed message must have been settled once:
// by an acknowledgement, or as a dead letter that is in its topic.
//   RATE=200 DURATION=90s WORKERS=8 scripts/loadtest queue       per second (50), for how many seconds (10s), workers (4)
import { check } from 'k6';
import http from 'k6/http';
import { Counter, Trend } from 'k6/metrics';
import exec from 'k6/execution';
import { users } from './lib/users.js';

const BASE = __ENV.WEIR_URL;
const SECONDS = Number((__ENV.DURATION || '10s').replace(/s$/, ''));
if (!(SECONDS > 0)) throw new Error(`DURATION is in seconds, like 90s, not ${__ENV.DURATION}`);
const RATE = Number(__ENV.RATE || 50);
const WORKERS = Number(__ENV.WORKERS || 4);
const JSON_TYPE = { headers: { 'Content-Type': 'application/json' } };
const published = new Counter('weir_published');
const acked = new Counter('weir_acked');
const failed = new Counter('weir_nacked');
const dead = new Counter('weir_dead');
const wrong = new Counter('weir_settled_wrong');
const waited = new Trend('weir_deliver_ms');

export const options = {
  scenarios: {
    publish: {
      executor: 'constant-arrival-rate',
      rate: RATE,
      timeUnit: '1s',
      duration: `${SECONDS}s`,
      ...users(RATE),
    },
    work: { executor: 'per-vu-iterations', exec: 'work', vus: WORKERS, iterations: 1, maxDuration: `${SECONDS + 40}s` },
  },
  thresholds: {
    checks: ['rate==1'],
    dropped_iterations: ['count==0'],
    weir_published: ['count>0'],
    weir_acked: ['count>0'],
    weir_nacked: ['count>0'],
    weir_dead: ['count>0'],
    weir_settled_wrong: ['count==0'],
  },
};

const post = (path, body) => http.post(`${BASE}/v1/${path}`, JSON.stringify(body), JSON_TYPE);
const put = (path, body) => http.put(`${BASE}/v1/${path}`, JSON.stringify(body), JSON_TYPE);

export function setup() {
  const name = `queue-${Date.now()}`;
  check(put(`topics/${name}`, { partitions: 2 }), { 'topic created': (answer) => answer.status === 201 });
  check(put(`topics/${name}.dead`, {}), { 'dead-letter topic created': (answer) => answer.status === 201 });
  const subscription = { mode: 'queue', topics: [name], max_attempts: 5, backoff_ms: [100], dlq: `${name}.dead` };
  check(put(`subscriptions/${name}`, subscription), { 'subscription created': (answer) => answer.status === 201 });
  return { name, until: Date.now() + SECONDS * 1000 };
}

export default function publish({ name }) {
  const n = exec.scenario.iterationInTest;
  const headers = { 'Content-Type': 'application/json', 'Message-Key': `k${n % 50}` };
  const sent = http.post(`${BASE}/v1/topics/${name}/messages`, JSON.stringify({ n, at: Date.now() }), { headers });
  if (check(sent, { confirmed: (answer) => answer.status === 201 })) published.add(1);
}

// One in twenty fails at its first delivery, one in a hundred is given up, the rest is done.
function settlement(messages) {
  const body = { ack: [], nack: [], dead: [] };
  for (const { lease, attempt, data } of messages) {
    if (data.n % 100 === 7) body.dead.push({ lease, reason: 'of no use' });
    else if (data.n % 20 === 3 && attempt === 1) body.nack.push({ lease, delay_ms: 200 });
    else body.ack.push(lease);
  }
  return body;
}

// Pulls once and settles what came; answers how many, or null if it was refused.
function take(name, holder) {
  const pulled = post(`subscriptions/${name}:pull`, { max: 32, wait_ms: 1000, holder });
  if (!check(pulled, { pulled: (answer) => answer.status === 200 })) return null;
  const { messages } = pulled.json();
  if (messages.length === 0) return 0;
  messages.filter(({ attempt }) => attempt === 1).forEach(({ data }) => waited.add(Date.now() - data.at));
  const body = settlement(messages);
  const settled = post(`subscriptions/${name}:settle`, body);
  check(settled, { 'settled, all of them': (answer) => answer.status === 200 });
  acked.add(body.ack.length);
  failed.add(body.nack.length);
  dead.add(body.dead.length);
  return messages.length;
}

export function work({ name, until }) {
  for (let taken; taken !== null && (taken !== 0 || Date.now() <= until + 3000); ) taken = take(name, `worker-${exec.vu.idInTest}`);
}

const isLeft = ({ unsettled, leased, dead_pending: onTheWay }) => unsettled > 0 || leased > 0 || onTheWay > 0;

// Nobody publishes any more, but a busy machine may have published the last behind the workers' backs, and dead letters
// may be on their way: goes on until nothing is left, or for half a minute.
function drain(name) {
  for (const end = Date.now() + 30000; ; ) {
    const described = http.get(`${BASE}/v1/subscriptions/${name}`).json();
    if (!isLeft(described.totals) || Date.now() > end || take(name, 'the last worker') === null) return described;
  }
}

export function teardown({ name }) {
  const { totals, parts } = drain(name);
  check(totals, { 'nothing is left': (left) => !isLeft(left) });
  const messages = parts.reduce((sum, part) => sum + part.end, 0);
  let given = 0;
  const seen = new Set();
  for (let next = 0, upToDate = false; !upToDate; ) {
    const page = http.get(`${BASE}/v1/topics/${name}.dead/messages?from=${next}&limit=5000`).json();
    page.messages.forEach(({ data, headers }) => {
      if (data.n % 100 !== 7 || seen.has(data.n) || headers['weir-dead-reason'] !== 'of no use') wrong.add(1);
      seen.add(data.n);
    });
    given += page.messages.length;
    next = page.next;
    upToDate = page.up_to_date;
  }
  check(given, { 'every dead letter is there once': (count) => count === totals.dead });
  check(messages, { 'every message was published': (count) => count > 0 });
}
