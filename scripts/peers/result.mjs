// Results of other load generators in the form that `weir bench table` reads, and ratios between results.
//   … | node scripts/peers/result.mjs weir WORKLOAD CASE             a result of `weir bench`, under another name
//   … | node scripts/peers/result.mjs kafka WORKLOAD CASE            what Kafka's ProducerPerformance prints
//   … | node scripts/peers/result.mjs rabbitmq WORKLOAD CASE SECONDS what RabbitMQ's PerfTest prints
//   node scripts/peers/result.mjs ratios FILE                        Markdown: the best of Weir beside each other
import { readFileSync } from "node:fs";

const [form, ...args] = process.argv.slice(2);
const confirm = (p50, p99, p999, max, count) => ({ name: "confirm", count, p50_us: p50, p99_us: p99, p999_us: p999, max_us: max });
const result = (rate, latency, seconds, remark) => ({
  workload: args[0], case: args[1], command: "scripts/bench-peers", warmup_s: 0, seconds, latencies: [latency],
  figures: [{ name: "confirmed_per_s", value: rate }], remarks: [remark],
});

const forms = {
  weir(text) {
    const found = text.trim().split("\n").map((line) => JSON.parse(line)).at(-1);
    const figures = found.figures.map(({ name, value }) => ({ name: name === "post_per_s" ? "confirmed_per_s" : name, value }));
    const kept = ["confirmed_per_s", "server_cpu_us_per_message"];
    const latencies = found.latencies.filter(({ name }) => name === "confirm");
    return { ...found, workload: args[0], case: args[1], command: "scripts/bench-peers", figures: figures.filter(({ name }) => kept.includes(name)), latencies };
  },
  kafka(text) {
    const line = text.split("\n").findLast((found) => found.includes("99.9th"));
    const of = (pattern) => Number(pattern.exec(line)[1]);
    const us = (percentile) => 1000 * of(new RegExp(`([\\d.]+) ms ${percentile}`));
    const [count, rate] = [of(/^(\d+) records sent/), of(/([\d.]+) records\/sec/)];
    const latency = confirm(us("50th"), us("99th"), us("99.9th"), 1000 * of(/([\d.]+) ms max latency/), count);
    return result(rate, latency, count / rate, "counted by its own tool, from when a message was sent, in whole ms");
  },
  rabbitmq(text) {
    const rate = Number(/sending rate avg: ([\d.]+) msg\/s/.exec(text)[1]);
    const line = text.split("\n").findLast((found) => found.includes("confirm latency"));
    const numbers = /confirm latency \S+ ([\d/.]+) (µs|ms)/.exec(line);
    const [, p50, , , p99] = numbers[1].split("/").map((value) => Number(value) * (numbers[2] === "ms" ? 1000 : 1));
    const latency = confirm(p50, p99, 0, 0, Math.round(rate * Number(args[2])));
    return result(rate, latency, Number(args[2]), "counted by its own tool; it tells neither p99.9 nor the longest");
  },
};

function ratios(file) {
  const results = readFileSync(file, "utf8").trim().split("\n").map((line) => JSON.parse(line));
  const rate = (found) => found.figures.find(({ name }) => name === "confirmed_per_s")?.value;
  const workloads = Map.groupBy ? Map.groupBy(results, ({ workload }) => workload) : groupBy(results);
  const lines = [];
  for (const [workload, runs] of workloads) {
    const cases = new Map();
    for (const run of runs.filter((found) => !found.void?.length && rate(found))) {
      cases.set(run.case, [...(cases.get(run.case) ?? []), rate(run)]);
    }
    const weir = [...cases].filter(([name]) => name.startsWith("Weir"));
    const others = [...cases].filter(([name]) => !name.startsWith("Weir"));
    if (weir.length === 0 || others.length === 0) continue;
    lines.push(`| ${workload} | ${weir.map(([name]) => name).join(" | ")} |`, `|---|${weir.map(() => "--:|").join("")}`);
    for (const [name, rates] of others) {
      const cells = weir.map(([, own]) => spread(own.flatMap((mine) => rates.map((theirs) => mine / theirs))));
      lines.push(`| beside ${name} | ${cells.join(" | ")} |`);
    }
    lines.push("");
  }
  return lines.join("\n");
}

function groupBy(results) {
  const groups = new Map();
  for (const found of results) groups.set(found.workload, [...(groups.get(found.workload) ?? []), found]);
  return groups;
}

function spread(values) {
  values.sort((a, b) => a - b);
  const shown = (value) => value.toFixed(value < 10 ? 2 : 0);
  const middle = shown(values[Math.floor((values.length - 1) / 2)]);
  return values.length === 1 ? `${middle} ×` : `${middle} × (${shown(values[0])}–${shown(values.at(-1))})`;
}

console.log(form === "ratios" ? ratios(args[0]) : JSON.stringify(forms[form](readFileSync(0, "utf8"))));
