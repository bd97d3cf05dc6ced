// Smoke: HTTP publishes at a constant arrival rate; every confirmed message is read back at its offset, and at the
// end the whole topic is read: offsets dense, every payload once.
//   scripts/loadtest smoke        RATE (per second, 100), DURATION (10s)
import { check } from 'k6';
import http from 'k6/http';
import { Counter, Trend } from 'k6/metrics';
import exec from 'k6/execution';

const BASE = __ENV.WEIR_URL;
const STAGES = ['gw', 'net', 'queue', 'write', 'fsync', 'quorum', 'total'];
const stages = Object.fromEntries(STAGES.map((stage) => [stage, new Trend(`weir_${stage}_ms`)]));
const confirmed = new Counter('weir_confirmed');
const wrong = new Counter('weir_read_back_wrong');

export const options = {
  scenarios: {
    publish: {
      executor: 'constant-arrival-rate',
      rate: Number(__ENV.RATE || 100),
      timeUnit: '1s',
      duration: __ENV.DURATION || '10s',
      preAllocatedVUs: 20,
      maxVUs: 100,
    },
  },
  thresholds: {
    checks: ['rate==1'],
    weir_read_back_wrong: ['count==0'],
    dropped_iterations: ['count==0'],
    weir_confirmed: ['count>0'],
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
