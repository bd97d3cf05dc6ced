#!/usr/bin/env node
// Who waits for a processor, how long, and who has it meanwhile; and how fast the disk answers: from a trace of the kernel.
// As root, while something runs:
//   cd /sys/kernel/tracing && echo mono > trace_clock && echo 60000 > buffer_size_kb
//   for event in sched/sched_wakeup sched/sched_switch block/block_rq_issue block/block_rq_complete; do
//     echo 1 > events/$event/enable
//   done
//   echo 1 > tracing_on; sleep 2; echo 0 > tracing_on; cat trace > /tmp/trace; echo 0 > events/enable
// Then: waits.mjs TRACE [NAME]    of threads whose names begin with NAME; without it of all. Times are microseconds.
import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";

const LINE = /^\s*.+?-\d+\s+\[(\d+)\]\s+\S+\s+([\d.]+): (\w+): (.*)$/;
const WAKEUP = /^comm=.+? pid=(\d+)/;
const SWITCH = /^prev_comm=(.+?) prev_pid=(\d+) prev_prio=\d+ prev_state=(\S+) ==> next_comm=(.+?) next_pid=(\d+)/;
const REQUEST = /^\S+ (\w+) (?:\d+ )?\(\) (\d+) \+ \d+/;
const LONG_US = 1000;
const SHOWN = 12;

const [path, prefix = ""] = process.argv.slice(2);
const [ready, since, issued] = [new Map(), new Map(), new Map()];
const [ran, waits, disk] = [new Map(), new Map(), new Map()];
let [first, last] = [Number.POSITIVE_INFINITY, 0];
const list = (of, key) => of.get(key) ?? of.set(key, []).get(key);

function switched(now, processor, [, name, before, state, next, after]) {
  const from = since.get(processor);
  if (from !== undefined) list(ran, processor).push({ from, to: now, name: before === "0" ? "idle" : name });
  since.set(processor, now);
  // Who was put aside waits from now on; who sleeps does not.
  if (!state.startsWith("R") || before === "0") ready.delete(before);
  else if (!ready.has(before)) ready.set(before, now);
  if (ready.has(after)) list(waits, `${next} ${after}`).push({ from: ready.get(after), to: now, processor });
  ready.delete(after);
}

for await (const line of createInterface({ input: createReadStream(path) })) {
  const found = LINE.exec(line);
  if (!found) continue;
  const [processor, now, event, what] = [found[1], Number(found[2]) * 1e6, found[3], found[4]];
  [first, last] = [Math.min(first, now), Math.max(last, now)];
  if (event === "sched_switch") {
    const parts = SWITCH.exec(what);
    if (parts) switched(now, processor, parts);
  } else if (event === "sched_wakeup") {
    const thread = WAKEUP.exec(what)?.[1];
    if (thread && !ready.has(thread)) ready.set(thread, now);
  } else if (event.startsWith("block_rq_")) {
    const [, kind, sector] = REQUEST.exec(what) ?? [];
    const key = `${kind} ${sector}`;
    if (event === "block_rq_issue") issued.set(key, now);
    else if (issued.has(key)) list(disk, kind).push(now - issued.get(key));
    if (event === "block_rq_complete") issued.delete(key);
  }
}

const seconds = (last - first) / 1e6;
const most = (of) => [...of].sort(([, a], [, b]) => b - a).slice(0, SHOWN);
const at = (sizes, part) => sizes.sort((a, b) => a - b)[Math.floor((sizes.length - 1) * part)].toFixed(0);
const add = (of, key, time) => of.set(key, (of.get(key) ?? 0) + time);

const busy = new Map();
for (const { from, to, name } of [...ran.values()].flat()) add(busy, name, to - from);
console.log(`${seconds.toFixed(2)} s. Percent of a processor:`);
for (const [name, time] of most(busy)) console.log(`  ${name.padEnd(24)} ${(time / seconds / 1e4).toFixed(1)}`);

const asked = [...waits].filter(([name]) => name.startsWith(prefix));
const holders = new Map();
console.log(`Waits for a processor: how many, p99, longest, how many above ${LONG_US}:`);
for (const [name] of most(asked.map(([name, times]) => [name, times.reduce((sum, it) => sum + it.to - it.from, 0)]))) {
  const sizes = waits.get(name).map(({ from, to }) => to - from);
  const long = sizes.filter((size) => size > LONG_US).length;
  console.log(`  ${name.padEnd(24)} ${sizes.length} ${at(sizes, 0.99)} ${at(sizes, 1)} ${long}`);
}
for (const { from, to, processor } of asked.flatMap(([, times]) => times).filter((it) => it.to - it.from > LONG_US)) {
  for (const held of ran.get(processor) ?? []) {
    const time = Math.min(held.to, to) - Math.max(held.from, from);
    if (time > 0) add(holders, held.name, time);
  }
}
console.log("Who had it in those above, ms:");
for (const [name, time] of most(holders)) console.log(`  ${name.padEnd(24)} ${(time / 1e3).toFixed(0)}`);

console.log("The disk by kind of request: how many a second, p50, p99, longest:");
for (const [kind, times] of disk) {
  console.log(`  ${kind.padEnd(24)} ${(times.length / seconds).toFixed(0)} ${at(times, 0.5)} ${at(times, 0.99)} ${at(times, 1)}`);
}
