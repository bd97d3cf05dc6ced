// Stress: more and more until more than it takes. Refusals (429, 503) are right if they had no effect; what was confirmed
// has to be there all the same, once.
//   RATE=4000 DURATION=60s scripts/loadtest stress        per second at the end (2000), in all (30s, at most 10m)
import exec from 'k6/execution';
import { ALWAYS, createTopic, publish, readAll, seconds, setting } from './lib/weir.js';

const SECONDS = seconds(__ENV.DURATION || '30s');
if (SECONDS > 600) throw new Error('DURATION is at most 10m');
const RATE = setting('RATE', 2000, [10, 20000]);
const STEPS = [0.1, 0.25, 0.5, 0.75, 1];

export const options = {
  scenarios: {
    publish: {
      executor: 'ramping-arrival-rate',
      startRate: 1,
      timeUnit: '1s',
      stages: STEPS.flatMap((part) => [
        { target: Math.round(RATE * part), duration: '1s' },
        { target: Math.round(RATE * part), duration: `${Math.max(1, Math.round(SECONDS / STEPS.length) - 1)}s` },
      ]),
      preAllocatedVUs: 200,
      maxVUs: 400,
    },
  },
  // k6 drops iterations where it is itself the limit: that is said by dropped_iterations, and no failure of Weir.
  thresholds: { ...ALWAYS, weir_outcome_unknown: ['count==0'] },
};

export const setup = () => ({ topic: createTopic('stress', 4) });
export default ({ topic }) => publish(topic, `http:${exec.scenario.iterationInTest}`);
export const teardown = ({ topic }) => readAll(topic);
