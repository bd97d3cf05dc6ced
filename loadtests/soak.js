// Soak: the same load for long. Confirms of the second half have to be as quick as those of the first, whatever has
// gathered meanwhile.
//   RATE=200 DURATION=2h scripts/loadtest soak        per second and kind (100), in all (60s, at most 24h)
import exec from 'k6/execution';
import { users } from './lib/users.js';
import { ALWAYS, FOLLOWED, createTopic, follow, publish, publishOverWebSocket, readAll, seconds, setting } from './lib/weir.js';

const SECONDS = seconds(__ENV.DURATION || '60s');
if (SECONDS > 86400) throw new Error('DURATION is at most 24h');
const RATE = setting('RATE', 100, [1, 5000]);
const HALF = Math.max(1, Math.floor(SECONDS / 2));
const half = (number) => ({
  executor: 'constant-arrival-rate',
  rate: RATE,
  timeUnit: '1s',
  duration: `${HALF}s`,
  startTime: `${number * HALF}s`,
  ...users(RATE),
  tags: { half: ['first', 'second'][number] },
});
const once = (name, vus) => ({ executor: 'per-vu-iterations', exec: name, vus, iterations: 1, maxDuration: `${SECONDS + 30}s` });
const P99 = `p(99)<${__ENV.CONFIRM_P99_MS || 1000}`;

export const options = {
  scenarios: { first: half(0), second: half(1), socket: once('socket', 1), follow: once('followers', 2) },
  thresholds: {
    ...ALWAYS,
    ...FOLLOWED,
    dropped_iterations: ['count==0'],
    weir_refused: ['count==0'],
    'weir_confirm_ms{half:first}': [P99],
    'weir_confirm_ms{half:second}': [P99],
  },
};

export const setup = () => ({ topic: createTopic('soak'), until: Date.now() + SECONDS * 1000 });
export default ({ topic }) => publish(topic, `${exec.scenario.name}:${exec.scenario.iterationInTest}`);
export const socket = ({ topic }) => publishOverWebSocket(topic, 'ws', RATE, SECONDS);
export const followers = ({ topic, until }) => follow(topic, until);
export const teardown = ({ topic }) => readAll(topic);
