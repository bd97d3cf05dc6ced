// Who publishes at an arrival rate: as many at once as fall due in ten seconds, made before the test begins. k6 drops an
// iteration for which nobody is free, also where `maxVUs` lets it make more: with few, the test that counts them fails
// because the machine is busy, and not because of Weir. How long a publish may take is for thresholds on times to say.
export const users = (rate) => ({ preAllocatedVUs: Math.min(1000, Math.max(20, 10 * rate)) });
