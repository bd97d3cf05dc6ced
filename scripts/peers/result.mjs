// What a load generator printed, as one JSON file per run.
//   … | node scripts/peers/result.mjs FORM DIRECTORY KEY=VALUE…
// FORM: wrk, weir (also bench-nats, which prints the same), kafka, rabbitmq. A file has: beside (the peer whose round it is), round,
// name, version, durability, shape, rate_per_s, p50_us, p99_us, server_cpu_us (per message; null if unknown), command, at,
// machine, void (why its figures are of no worth).
import { readFileSync, writeFileSync } from "node:fs";
import { cpus, release, totalmem } from "node:os";
import { join } from "node:path";

const [form, directory, ...pairs] = process.argv.slice(2);
const given = Object.fromEntries(pairs.map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]));

const forms = {
  wrk(text) {
    const of = (key) => Number(new RegExp(`^${key} (\\d+)`, "m").exec(text)[1]);
    const count = of("requests");
    return {
      rate_per_s: count / (of("duration_us") / 1e6), p50_us: of("p50_us"), p99_us: of("p99_us"),
      server_cpu_us: of("server_cpu_us") / count, command: "wrk -t1 -c64 -s scripts/peers/post.lua",
      void: of("failed") ? [`${of("failed")} requests failed`] : [],
    };
  },
  weir(text) {
    const found = text.trim().split("\n").map((line) => JSON.parse(line)).at(-1);
    const figure = (name) => found.figures.find((it) => it.name === name)?.value ?? null;
    const { p50_us, p99_us } = found.latencies.find(({ name }) => name === "confirm");
    const cpu = figure("server_cpu_us_per_message");
    return { rate_per_s: figure("confirmed_per_s"), p50_us, p99_us, server_cpu_us: cpu, command: found.command, void: found.void ?? [] };
  },
  kafka(text) {
    const line = text.split("\n").findLast((found) => found.includes("99.9th"));
    const of = (pattern) => Number(pattern.exec(line)[1]);
    const us = (percentile) => 1000 * of(new RegExp(`([\\d.]+) ms ${percentile}`));
    const count = of(/^(\d+) records sent/);
    return {
      rate_per_s: of(/([\d.]+) records\/sec/), p50_us: us("50th"), p99_us: us("99th"),
      server_cpu_us: Number(given.cpu_us) / count, command: "", void: [],
    };
  },
  rabbitmq(text) {
    const rate = Number(/sending rate avg: ([\d.]+) msg\/s/.exec(text)[1]);
    const line = text.split("\n").findLast((found) => found.includes("confirm latency"));
    const numbers = /confirm latency \S+ ([\d/.]+) (µs|ms)/.exec(line);
    const [, p50, , , p99] = numbers[1].split("/").map((value) => Number(value) * (numbers[2] === "ms" ? 1000 : 1));
    return { rate_per_s: rate, p50_us: p50, p99_us: p99, server_cpu_us: null, command: "", void: [] };
  },
};

const { beside, round, name, version, durability, shape } = given;
const measured = forms[form](readFileSync(0, "utf8"));
const machine = { cores: cpus().length, cpu: cpus()[0].model, memory_gib: Math.floor(totalmem() / 2 ** 30), kernel: release() };
const at = new Date().toISOString().slice(0, 19) + "Z";
const command = given.command ?? measured.command;
const result = { beside, round: Number(round), name, version, durability, shape, ...measured, command, at, machine };
const slug = `${name} ${shape}`.toLowerCase().replace(/[^a-z0-9]+/g, "-");
writeFileSync(join(directory, `${beside}.${round}.${slug}.json`), `${JSON.stringify(result, null, 1)}\n`);
