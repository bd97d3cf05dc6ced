// docs/performance/peers.md from the results that scripts/bench-peers keeps.
//   node scripts/peers/report.mjs DIRECTORY            the document
//   node scripts/peers/report.mjs DIRECTORY --part     its tables alone, for another document
//   node scripts/peers/report.mjs DIRECTORY --lines    the results as `weir bench table` reads them
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

const [directory, how] = process.argv.slice(2);
const files = readdirSync(directory).sort();
const results = files.filter((file) => file.endsWith(".json")).map((file) => JSON.parse(readFileSync(join(directory, file), "utf8")));
const missing = files.filter((file) => file.endsWith(".missing"))
  .map((file) => [file.slice(0, -".missing".length), readFileSync(join(directory, file), "utf8").trim().split("\n").at(-1).replace(/^error: /, "")]);
const good = results.filter((run) => run.void.length === 0);
const isWeir = (run) => run.name === "Weir";

const HTTP = "HTTP, 64 under way";
const shapes = {
  [HTTP]: "One message of 1 KiB per POST, keep-alive HTTP/1.1, 64 connections with one request under way on each, 64 topics or streams in turn. " +
    "The load is wrk's for all: `wrk -t1 -c64 -s scripts/peers/post.lua`; its times are from sending to the whole answer.",
  "alone, 64 under way": "64 messages of 1 KiB under way, each confirmed before its sender sends the next, one topic. Weir over 64 binary WebSockets " +
    "with a reader that gets everything at the same time, NATS over one connection of its Go client, RabbitMQ with 64 producers of its PerfTest.",
  "pipelined, one connection": "One connection with up to 1,024 messages of 1 KiB under way, one topic. Weir and Kafka put several into one batch; Weir has " +
    "a reader that gets everything at the same time; Kafka's producer decides how many are under way (32 MiB).",
};

const number = (value) => (value >= 1000 ? Math.round(value).toLocaleString("en") : value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));

// Median, with the lowest and highest where there are several.
function spread(values, unit = "") {
  const sorted = values.filter((value) => value !== null && Number.isFinite(value)).sort((a, b) => a - b);
  if (sorted.length === 0) return "–";
  const middle = number(sorted[Math.floor((sorted.length - 1) / 2)]) + unit;
  return sorted.length === 1 ? middle : `${middle} (${number(sorted[0])}–${number(sorted.at(-1))})`;
}

// For each run of others the run of Weir in the same round: [of theirs, of Weir].
const pairs = (name, shape) => good.filter((run) => run.name === name && run.shape === shape)
  .map((run) => [run, good.find((own) => isWeir(own) && own.shape === shape && own.beside === run.beside && own.round === run.round)])
  .filter(([, own]) => own);

function table(shape) {
  const of = good.filter((run) => run.shape === shape);
  const names = [...new Set(of.map(({ name }) => name))].sort((a, b) => (b === "Weir") - (a === "Weir"));
  const row = (name) => {
    const runs = of.filter((run) => run.name === name);
    const value = (key) => spread(runs.map((run) => run[key]));
    const both = name === "Weir" ? [] : pairs(name, shape);
    const ratio = (key) => spread(both.map(([theirs, own]) => own[key] / theirs[key]), " ×");
    const ratios = name === "Weir" ? "| | " : `| ${ratio("rate_per_s")} | ${ratio("p99_us")} `;
    const { version, durability } = runs.at(-1);
    return `| ${name} ${version} | ${durability} | ${runs.length} | ${value("rate_per_s")} | ${value("p50_us")} | ${value("p99_us")} | ${value("server_cpu_us")} ${ratios}|`;
  };
  return ["| | a confirm is | runs | messages/s | p50 µs | p99 µs | server CPU-µs per message | rate, Weir : it | p99, Weir : it |",
    "|---|---|--:|--:|--:|--:|--:|--:|--:|", ...names.map(row)].join("\n");
}

// Shapes and peers beside which the median of Weir is the worse one.
function losses() {
  const lines = [];
  for (const shape of Object.keys(shapes)) {
    for (const name of new Set(good.filter((run) => run.shape === shape && !isWeir(run)).map((run) => run.name))) {
      const both = pairs(name, shape);
      const is = (key, what, isWorse) => {
        const ratios = both.filter(([theirs, own]) => theirs[key] && own[key]).map(([theirs, own]) => own[key] / theirs[key]).sort((a, b) => a - b);
        if (ratios.length && isWorse(ratios[Math.floor((ratios.length - 1) / 2)])) lines.push(`- ${shape}, beside ${name}: ${what} is ${spread(ratios, " ×")} its.`);
      };
      is("rate_per_s", "Weir's rate", (ratio) => ratio < 1);
      is("p99_us", "Weir's p99", (ratio) => ratio > 1);
      is("server_cpu_us", "Weir's processor time per message", (ratio) => ratio > 1);
    }
  }
  if (!good.some(isWeir)) return "Nothing was measured.";
  return lines.length ? lines.join("\n") : "Nowhere in these shapes.";
}

function part() {
  const tables = Object.entries(shapes).filter(([shape]) => good.some((run) => run.shape === shape))
    .map(([shape, what]) => `### ${shape}\n\n${what}\n\n${table(shape)}\n`);
  const voids = results.filter((run) => run.void.length).map((run) => `- void: ${run.name}, ${run.shape}, round ${run.round} beside ${run.beside}: ${run.void.join("; ")}`);
  const absent = missing.map(([peer, why]) => `- not measured: ${peer}: ${why}`);
  const notes = [...voids, ...absent];
  return [...tables, ...(notes.length ? [`${notes.join("\n")}\n`] : []), `### Where Weir loses\n\n${losses()}\n`].join("\n");
}

function documentOf() {
  const days = [...new Set(results.map((run) => run.at.slice(0, 10)))].sort();
  const machine = results.at(-1)?.machine;
  const place = machine ? `Machine: ${machine.cores} processors (${machine.cpu}), ${machine.memory_gib} GiB, Linux ${machine.kernel}. Measured on ${days.join(", ")}.` : "";
  const commands = [...new Set(results.map((run) => `\`${run.command.replace(/\S*\/\.cache\/\S+/g, "DIR")}\``))].sort();
  return `# Weir beside others

Written by \`scripts/bench-peers\`; change nothing here by hand.

Server, load generator and disk share one small machine, with one server at a time, so absolute figures say little. What is claimed are
ratios: **each run of a peer has a run of Weir beside it, in the same minute**, and a ratio is that of such a pair. Shown are the
median of the rounds and, in brackets, the lowest and the highest. All run as one node without replicas. Versions are those that the
script installs (\`scripts/versions.env\`, \`scripts/peers/*.pom.xml\`). Processor time is that of the server alone, where it can be told apart.
The first second is not counted; the generators of Kafka and RabbitMQ, which count from their first message, are started anew for each run.

${place}

${part()}
Commands, each begun by \`scripts/bench-peers\`: ${commands.join(", ")}.
`;
}

// Weir's rate beside this run of another, as in the tables.
const besideIt = (run) => pairs(run.name, run.shape).filter(([theirs]) => theirs === run)
  .map(([theirs, own]) => ({ name: "weir_rate_per_its_rate", value: own.rate_per_s / theirs.rate_per_s }));

// In the form of a result of `weir bench`.
const line = (run) => JSON.stringify({
  workload: run.shape, case: `${run.name} ${run.version}, ${run.durability}`, command: "scripts/bench-peers", at: run.at, machine: run.machine, warmup_s: 0, seconds: 0,
  latencies: [{ name: "confirm", count: 1, p50_us: Math.round(run.p50_us), p99_us: Math.round(run.p99_us), p999_us: 0, max_us: 0 }],
  figures: [{ name: "confirmed_per_s", value: run.rate_per_s }, ...(run.server_cpu_us === null ? [] : [{ name: "server_cpu_us_per_message", value: run.server_cpu_us }]), ...besideIt(run)],
  void: run.void,
});

console.log(how === "--lines" ? results.map(line).join("\n") : how === "--part" ? part() : documentOf().trimEnd());
