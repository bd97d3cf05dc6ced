// Fan-out: one publisher, many that follow the same topic: READERS over WebSockets, and as many with long polls over
// HTTP.
//   RATE=50 READERS=100 DURATION=60s scripts/loadtest fan-out        per second (20), readers of each kind (20), in all (20s)
import exec from 'k6/execution';
import { users } from './lib/users.js';
import { ALWAYS, FOLLOWED, createTopic, follow, poll, publish, readAll, seconds, setting } from './lib/weir.js';

const SECONDS = seconds(__ENV.DURATION || '20s');
const RATE = setting('RATE', 20, [1, 1000]);
const READERS = setting('READERS', 20, [1, 2000]);
const once = (name, vus) => ({ executor: 'per-vu-iterations', exec: name, vus, iterations: 1, maxDuration: `${SECONDS + 30}s` });

export const options = {
  scenarios: {
    publish: {
      executor: 'constant-arrival-rate',
      rate: RATE,
      timeUnit: '1s',
      duration: `${SECONDS}s`,
      ...users(RATE),
    },
    follow: once('followers', READERS),
    poll: once('pollers', READERS),
  },
  thresholds: {
    ...ALWAYS,
    ...FOLLOWED,
    dropped_iterations: ['count==0'],
    'weir_deliver_ms{scenario:follow}': [`p(99)<${__ENV.DELIVER_P99_MS || 2000}`],
    'weir_deliver_ms{scenario:poll}': [`p(99)<${__ENV.DELIVER_P99_MS || 2000}`],
  },
};

export const setup = () => ({ topic: createTopic('fan-out'), until: Date.now() + SECONDS * 1000 });
export default ({ topic }) => publish(topic, `http:${exec.scenario.iterationInTest}`);
export const followers = ({ topic, until }) => follow(topic, until);
export const pollers = ({ topic, until }) => poll(topic, until);
export const teardown = ({ topic }) => readAll(topic);
