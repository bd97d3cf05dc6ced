// The table of targets with what was measured, from the results that scripts/bench-results keeps.
//   node scripts/bench-targets.mjs DIRECTORY
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const directory = process.argv[2];
const results = ["low-rate", "targets", "peers", "scale"].flatMap((set) => {
  const file = join(directory, `${set}.json`);
  if (!existsSync(file)) return [];
  return readFileSync(file, "utf8").trim().split("\n").filter(Boolean).map((line) => JSON.parse(line));
});
const good = results.filter(({ void: reasons }) => !reasons?.length);

// Values of a figure in the results that match.
function figures(workload, pattern, name) {
  const found = good.filter((run) => run.workload === workload && pattern.test(run.case));
  return found.flatMap((run) => run.figures.filter((figure) => figure.name === name).map(({ value }) => value));
}
const rates = (workload, pattern) => figures(workload, pattern, "confirmed_per_s");
const ratios = (own, others) => own.flatMap((mine) => others.map((theirs) => mine / theirs));

function shown(values, unit, factor = 1) {
  if (values.length === 0) return "not measured";
  const sorted = values.map((value) => value * factor).sort((a, b) => a - b);
  const text = (value) => (value >= 100 ? value.toFixed(0) : value.toPrecision(2));
  const middle = text(sorted[Math.floor((sorted.length - 1) / 2)]);
  return sorted.length === 1 ? `${middle} ${unit}` : `${middle} ${unit} (${text(sorted[0])} to ${text(sorted.at(-1))})`;
}

const pipelined = "pipelined, one connection";
const overHttp = "HTTP, 64 under way";
const rows = [
  ["journal group commit at 1 / 16 / 256 / 1,024 outstanding", "90 % of a bare write-and-sync loop", "by its own bench, in [experiments](experiments.md)", "cargo bench -p weir-journal -- commit"],
  ["confirm p50 at 50/s, HTTP, beside the disk's own write and sync", "must ≤ 2, target ≤ 1.5 times", shown(figures("lone", /^50\/s/, "confirm_p50_per_disk_p50"), "times"), "weir bench lone --rate 50"],
  ["the same at 1,000/s", "must ≤ 2, target ≤ 1.5 times", shown(figures("lone", /^1k\/s/, "confirm_p50_per_disk_p50"), "times"), "weir bench lone --rate 1k"],
  ["server CPU, publish and deliver 1 KiB, binary WebSocket, as fast as it goes", "publish alone ≤ 1.5 µs per message", shown(figures("steady", /^max/, "server_cpu_us_per_message"), "µs, delivery included"), "weir bench steady --rate max"],
  ["server CPU, queue publish, deliver, settle (over HTTP, prefetch 64)", "≤ 4 µs per message", shown(figures("queue-lifecycle", /prefetch 64/, "server_cpu_us_per_message"), "µs"), "weir bench queue-lifecycle --rate 5k --prefetch 64"],
  ["server CPU, fan-out to 32 readers, per delivered 1 KiB", "≤ 0.7 µs", shown(figures("fan-out", /32 readers/, "server_cpu_us_per_delivery"), "µs, publishing included"), "weir bench fan-out --readers 32 --rate 10k"],
  ["one message per POST, HTTP/1.1, 64 connections", "≥ 40 % of the server's empty 204", shown(figures("http", /HTTP\/1.1, 64 /, "post_per_empty_pct"), "%"), "weir bench http --connections 64"],
  ["the same, 1,024 connections", "≥ 40 %", shown(figures("http", /HTTP\/1.1, 1024 /, "post_per_empty_pct"), "%"), "weir bench http --connections 1024"],
  ["pipelined, beside NATS JetStream with a sync per ack", "≥ 40 times", shown(ratios(rates(pipelined, /^Weir/), rates(pipelined, /sync_interval: always/)), "times"), "scripts/bench-peers nats"],
  ["pipelined, beside Kafka, flush per message", "≥ 6 times", shown(ratios(rates(pipelined, /^Weir/), rates(pipelined, /Kafka.*flush/)), "times"), "scripts/bench-peers kafka"],
  ["pipelined, beside a RabbitMQ quorum queue", "≥ 20 times", shown(ratios(rates(pipelined, /^Weir/), rates(pipelined, /RabbitMQ/)), "times"), "scripts/bench-peers rabbitmq"],
  ["many topics: POST/s at 10,000 beside 64", "flat", shown(ratios(figures("many-topics", /^10000 /, "post_per_s"), figures("many-topics", /^64 /, "post_per_s")), "%", 100), "weir bench many-topics --topics 64,10000"],
  ["recovery after kill -9, start of the process to the first confirm", "journal scan ≥ 6 GiB/s", shown(figures("recovery", /./, "first_confirm_s"), "s"), "weir bench recovery --size 2GiB"],
  ["idle topics", "≤ 1 KiB resident each, ≤ 0.5 % of a core", shown(figures("idle", /./, "grown_rss_bytes_per_topic"), "B each"), "weir bench idle"],
  ["64 closed-loop HTTP writers, beside S2 Lite", "≥ 4 times", shown(ratios(rates(overHttp, /^Weir/), rates(overHttp, /^S2/)), "times"), "scripts/bench-peers s2-lite"],
  ["the same, beside durable-streams-server", "≥ 7 times", shown(ratios(rates(overHttp, /^Weir/), rates(overHttp, /^durable-streams/)), "times"), "scripts/bench-peers durable-streams"],
  ["64 streams, beside Ursula (wrk instead of ursula-bench)", "≥ 3 times", shown(ratios(rates(overHttp, /^Weir/), rates(overHttp, /^Ursula/)), "times"), "scripts/bench-peers ursula"],
  ["3 nodes, quorum confirm", "≥ 0.35 of one node", "not measured: there is one node in this version", "–"],
  ["cold read through the cache", "≥ 80 % of bare GETs", "not measured: there is no object storage in this version", "–"],
  ["10,000 idle WebSockets; half of 1,000 readers frozen", "≤ 20 KiB each; memory flat", "not measured: no workload yet", "–"],
];

const machine = good.map((run) => run.machine).find((found) => found?.cores);
const days = [...new Set(good.map((run) => (run.at ?? "").slice(0, 10)).filter(Boolean))].sort();
if (machine) {
  console.log(`Machine: ${machine.cores} processors (${machine.cpu}), ${machine.memory_gib} GiB, Linux ${machine.kernel}. Measured on ${days.join(", ")}.\n`);
}
console.log("## Targets\n\n| what | at least | measured | command |\n|---|---|---|---|");
for (const [what, target, measured, command] of rows) console.log(`| ${what} | ${target} | ${measured} | \`${command}\` |`);
