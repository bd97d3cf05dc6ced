// Smoke: HTTP publishes at a constant arrival rate while a WebSocket follows within credit. Every confirmed message is
// read back at its offset and delivered once, in order; at the end the whole topic is read: offsets dense, every
// payload once.
//   RATE=200 DURATION=1m30s scripts/loadtest smoke        per second (100), for how long (10s)
import { check } from 'k6';
import http from 'k6/http';
import { Counter, Trend } from 'k6/metrics';
import exec from 'k6/execution';
import { WebSocket } from 'k6/websockets';
import { users } from './lib/users.js';

const BASE = __ENV.WEIR_URL;
const STAGES = ['gw', 'net', 'queue', 'write', 'fsync', 'quorum', 'total'];
const stages = Object.fromEntries(STAGES.map((stage) => [stage, new Trend(`weir_${stage}_ms`)]));
const confirmed = new Counter('weir_confirmed');
const wrong = new Counter('weir_read_back_wrong');
const delivered = new Counter('weir_delivered');
const misplaced = new Counter('weir_delivered_misplaced');
const deliver = new Trend('weir_deliver_ms');
const DURATION = __ENV.DURATION || '10s';
const UNITS = { h: 3600, m: 60, s: 1, ms: 0.001 };
const PARTS = [...DURATION.matchAll(/([\d.]+)(ms|h|m|s)/g)];
if (PARTS.map(([part]) => part).join('') !== DURATION) throw new Error(`DURATION is like 90s or 1m30s, not ${DURATION}`);
const SECONDS = Math.ceil(PARTS.reduce((sum, [, count, unit]) => sum + Number(count) * UNITS[unit], 0));
const CREDIT = 200;
const RATE = Number(__ENV.RATE || 100);

export const options = {
  scenarios: {
    publish: {
      executor: 'constant-arrival-rate',
      rate: RATE,
      timeUnit: '1s',
      duration: DURATION,
      ...users(RATE),
    },
    follow: { executor: 'per-vu-iterations', exec: 'follow', vus: 2, iterations: 1, maxDuration: `${SECONDS + 30}s` },
  },
  thresholds: {
    checks: ['rate==1'],
    weir_read_back_wrong: ['count==0'],
    dropped_iterations: ['count==0'],
    weir_confirmed: ['count>0'],
    weir_delivered: ['count>0'],
    weir_delivered_misplaced: ['count==0'],
  },
};

export function setup() {
  const topic = `smoke-${Date.now()}`;
  const made = http.put(`${BASE}/v1/topics/${topic}`, '{}', { headers: { 'Content-Type': 'application/json' } });
  check(made, { 'topic created': (answer) => answer.status === 201 });
  return { topic };
}

export default function publish({ topic }) {
  const payload = `message ${exec.scenario.iterationInTest}`;
  const sent = http.post(`${BASE}/v1/topics/${topic}/messages`, payload, { headers: { 'Content-Type': 'text/plain' } });
  if (!check(sent, { confirmed: (answer) => answer.status === 201 && answer.headers['Confirm-Level'] === 'quorum' })) return;
  confirmed.add(1);
  for (const [, stage, ms] of (sent.headers['Server-Timing'] || '').matchAll(/(\w+);dur=([\d.]+)/g)) {
    if (stages[stage]) stages[stage].add(Number(ms));
  }
  const { partition, offset } = sent.json();
  const read = http.get(`${BASE}/v1/topics/${topic}/messages/${partition}/${offset}`);
  if (!check(read, { 'read back': (answer) => answer.status === 200 && answer.body === payload })) wrong.add(1);
}

// Follows from the beginning; done when it has everything that was there once publishing was over. On a busy machine the
// last come later than that: then it may have more.
export function follow({ topic }) {
  const socket = new WebSocket(`${BASE.replace('http', 'ws')}/v1/ws`, 'weir.v1.json');
  const send = (frame) => socket.send(JSON.stringify(frame));
  let next = 0;
  let end = Infinity;
  const limit = () => ({ msgs: next + CREDIT, bytes: (next + CREDIT) * 10000 });
  const isDone = () => next >= end && socket.close();
  socket.onopen = () => send({ t: 'hello', v: 1, client: 'k6' });
  socket.onerror = (event) => check(event, { 'the WebSocket works': () => false });
  socket.onmessage = ({ data }) => {
    const frame = JSON.parse(data);
    if (frame.t === 'welcome') send({ t: 'sub', ch: 1, topic, from: 'earliest', limit: limit() });
    if (frame.t === 'ping') send({ t: 'pong', id: frame.id });
    if (frame.t === 'err') check(frame, { 'no refusal': () => false });
    for (const msg of frame.msgs || (frame.t === 'msg' ? [frame] : [])) {
      if (msg.o !== next) misplaced.add(1);
      next = msg.o + 1;
      delivered.add(1);
      deliver.add(Date.now() - msg.ts);
    }
    if (next % (CREDIT / 4) === 0 || frame.t === 'msgs') send({ t: 'limit', ch: 1, ...limit() });
    isDone();
  };
  setTimeout(() => {
    end = http.get(`${BASE}/v1/topics/${topic}`).json().partitions[0].end;
    isDone();
  }, (SECONDS + 2) * 1000);
  setTimeout(() => {
    check(next, { 'everything was delivered': (count) => count >= end });
    socket.close();
  }, (SECONDS + 10) * 1000);
}

export function teardown({ topic }) {
  const seen = new Set();
  for (let next = 0, upToDate = false; !upToDate; ) {
    const page = http.get(`${BASE}/v1/topics/${topic}/messages?from=${next}&limit=5000`).json();
    page.messages.forEach((message, i) => {
      check(message, { 'offsets are dense': () => message.offset === next + i, 'payload once': () => !seen.has(message.data) });
      seen.add(message.data);
    });
    next = page.next;
    upToDate = page.up_to_date;
  }
}
