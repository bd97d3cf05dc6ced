// Load: what a usual day looks like. HTTP publishers come up to the rate, stay, and go; one connection publishes over a
// WebSocket at the same rate; two WebSockets follow.
//   RATE=200 DURATION=60s scripts/loadtest load        per second and kind (100), in all (30s)
import exec from 'k6/execution';
import { users } from './lib/users.js';
import { ALWAYS, FOLLOWED, createTopic, follow, publish, publishOverWebSocket, readAll, seconds, setting } from './lib/weir.js';

const SECONDS = seconds(__ENV.DURATION || '30s');
const RATE = setting('RATE', 100, [1, 5000]);
const at = (part) => `${Math.max(1, Math.round(SECONDS * part))}s`;
const once = (name, vus) => ({ executor: 'per-vu-iterations', exec: name, vus, iterations: 1, maxDuration: `${SECONDS + 30}s` });

export const options = {
  scenarios: {
    publish: {
      executor: 'ramping-arrival-rate',
      startRate: 1,
      timeUnit: '1s',
      stages: [
        { target: RATE, duration: at(0.2) },
        { target: RATE, duration: at(0.7) },
        { target: 1, duration: at(0.1) },
      ],
      ...users(RATE),
    },
    socket: once('socket', 1),
    follow: once('followers', 2),
  },
  thresholds: {
    ...ALWAYS,
    ...FOLLOWED,
    dropped_iterations: ['count==0'],
    weir_refused: ['count==0'],
    weir_confirm_ms: [`p(99)<${__ENV.CONFIRM_P99_MS || 1000}`],
    weir_deliver_ms: [`p(99)<${__ENV.DELIVER_P99_MS || 2000}`],
  },
};

export const setup = () => ({ topic: createTopic('load'), until: Date.now() + SECONDS * 1000 });
export default ({ topic }) => publish(topic, `http:${exec.scenario.iterationInTest}`);
export const socket = ({ topic }) => publishOverWebSocket(topic, 'ws', RATE, SECONDS);
export const followers = ({ topic, until }) => follow(topic, until);
export const teardown = ({ topic }) => readAll(topic);
