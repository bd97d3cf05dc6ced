// Spike: ten times the usual rate all of a sudden, and back. Afterwards confirms have to be what they were before.
//   RATE=100 DURATION=30s scripts/loadtest spike        per second before and after (50), in all (21s)
import exec from 'k6/execution';
import { ALWAYS, FOLLOWED, createTopic, follow, publish, readAll, seconds, setting } from './lib/weir.js';

const SECONDS = seconds(__ENV.DURATION || '21s');
const RATE = setting('RATE', 50, [1, 2000]);
const THIRD = Math.max(2, Math.floor(SECONDS / 3));
const phase = (rate, number) => ({
  executor: 'constant-arrival-rate',
  rate,
  timeUnit: '1s',
  duration: `${THIRD}s`,
  startTime: `${number * THIRD}s`,
  preAllocatedVUs: 50,
  maxVUs: 300,
  tags: { phase: ['before', 'spike', 'after'][number] },
});

export const options = {
  scenarios: {
    before: phase(RATE, 0),
    spike: phase(RATE * 10, 1),
    after: phase(RATE, 2),
    follow: { executor: 'per-vu-iterations', exec: 'followers', vus: 2, iterations: 1, maxDuration: `${SECONDS + 30}s` },
  },
  thresholds: {
    ...ALWAYS,
    ...FOLLOWED,
    weir_outcome_unknown: ['count==0'],
    'weir_confirm_ms{phase:before}': ['p(50)<500'],
    'weir_confirm_ms{phase:spike}': ['p(50)<5000'],
    'weir_confirm_ms{phase:after}': ['p(50)<500'],
  },
};

export const setup = () => ({ topic: createTopic('spike'), until: Date.now() + 3 * THIRD * 1000 });
export default ({ topic }) => publish(topic, `${exec.scenario.name}:${exec.scenario.iterationInTest}`);
export const followers = ({ topic, until }) => follow(topic, until);
export const teardown = ({ topic }) => readAll(topic);
