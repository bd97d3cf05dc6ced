// What each stage of a path may cost a message, in microseconds of the server's processor time: the path's target, divided by what
// it has to do. Bytes are copied and checked at the speed of memory, a batch takes one call into the system on each side, and a
// hop wakes somebody once a batch, not once a message.
const STAGES = [
  // path:                     publish deliver queue fan-out http
  ["waking and waiting", 0.1, 0.25, 0.5, 0.05, 2.5],
  ["polling", 0.01, 0.03, 0.05, 0.01, 0.3],
  ["memory from the kernel", 0.03, 0.05, 0.1, 0.01, 0.2],
  ["disk", 0.2, 0.25, 0.4, 0.02, 2],
  ["sockets, writing", 0.02, 0.35, 0.5, 0.4, 4.5],
  ["sockets, reading", 0.25, 0.25, 0.35, 0.01, 1.5],
  ["the clock", 0.01, 0.02, 0.05, 0.01, 0.2],
  ["allocating", 0.08, 0.1, 0.25, 0.02, 1.5],
  ["copying", 0.25, 0.3, 0.4, 0.05, 0.8],
  ["checksums and compressing", 0.15, 0.15, 0.2, 0, 0.3],
  ["journal", 0.03, 0.04, 0.1, 0, 0.4],
  ["consensus", 0.03, 0.04, 0.15, 0, 0.5],
  ["work queues", 0, 0, 0.3, 0, 0],
  ["storage node", 0.08, 0.1, 0.2, 0.01, 0.8],
  ["frames between gateway and node", 0.02, 0.03, 0.05, 0.01, 0.3],
  ["batches and frames", 0.05, 0.06, 0.1, 0.01, 0.3],
  ["WebSocket", 0.06, 0.08, 0.15, 0.03, 0],
  ["gateway", 0.03, 0.04, 0.1, 0.02, 1.2],
  ["HTTP", 0, 0, 0, 0, 2.2],
  ["runtime", 0.1, 0.06, 0.05, 0.04, 1],
];
const PATHS = ["publish", "deliver", "queue", "fan-out", "http"];

/** Microseconds; undefined for a path that has no budget. */
export function budgetOf(path, stage) {
  const at = PATHS.indexOf(path) + 1;
  if (at === 0) return undefined;
  return STAGES.find(([name]) => name === stage)?.[at] ?? 0;
}

export const budgetOfAll = (path) => (PATHS.includes(path) ? STAGES.reduce((sum, row) => sum + row[PATHS.indexOf(path) + 1], 0) : undefined);
