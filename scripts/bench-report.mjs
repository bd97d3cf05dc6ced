// What scripts/bench-results keeps and shows.
//   node scripts/bench-report.mjs summary SET FILE       results of `weir bench … --out FILE`, summed up by case
//   node scripts/bench-report.mjs document DIRECTORY     Markdown from the summaries in a directory
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { targets } from "./bench-targets.mjs";

// Beyond this share of the processors for others a run says more about them; as `weir bench` has it.
const OTHERS_PCT_MAX = 10;
// Of interest while something is looked into, not in a summary.
const DROPPED = ["voluntary_switches_per_s", "involuntary_switches_per_s", "published_mib_per_s"];

const digits = (value) => Number(value.toPrecision(4));
const sorted = (values) => [...values].sort((a, b) => a - b);
const unique = (values) => [...new Set(values.filter(Boolean))].sort();

/** One line per case, so that a change of one is a change of one line. */
function summary(set, file) {
  const lines = readFileSync(file, "utf8").split("\n").filter(Boolean);
  const all = lines.map((line) => JSON.parse(line));
  // What is resumed is of one build; results of others are old.
  const build = all.at(-1)?.build ?? "";
  const runs = all.filter((run) => (run.build ?? "") === build);
  const cases = new Map();
  for (const run of runs) {
    const name = `${run.workload}\n${run.case}`;
    if (!cases.has(name)) {
      cases.set(name, { workload: run.workload, case: run.case, command: run.command, runs: 0, voided: 0, void: [], busy: 0, latencies: {}, figures: {}, remarks: [] });
    }
    const found = cases.get(name);
    found.runs += 1;
    if (run.void?.length) {
      found.voided += 1;
      found.void.push(...run.void);
      continue;
    }
    for (const { name: of, count, p50_us, p99_us, p999_us } of run.latencies.filter(({ count }) => count > 0)) {
      const into = (found.latencies[of] ??= { count: [], p50: [], p99: [], p999: [] });
      into.count.push(count), into.p50.push(p50_us), into.p99.push(p99_us), into.p999.push(p999_us);
    }
    for (const { name: of, value } of run.figures.filter(({ name: of }) => !DROPPED.includes(of))) {
      (found.figures[of] ??= []).push(digits(value));
      if (of === "others_cpu_pct" && value > OTHERS_PCT_MAX) found.busy += 1;
    }
    const remarks = (run.remarks ?? []).filter((remark) => !remark.startsWith("the machine was busy"));
    found.remarks = unique([...found.remarks, ...remarks]);
  }
  const machine = runs.map((run) => run.machine).find((found) => found?.cores) ?? {};
  const { cores, cpu, kernel, memory_gib } = machine;
  const syncs = runs.flatMap((run) => run.latencies.filter(({ name }) => name === "disk write and sync").map(({ p50_us }) => p50_us));
  const head = { set, build, days: unique(runs.map((run) => run.at?.slice(0, 10))), machine: { cores, cpu, kernel, memory_gib }, disk_sync_p50_us: spreadOf(syncs) };
  const rows = [...cases.values()].map((found) => JSON.stringify(found));
  return `${JSON.stringify(head).slice(0, -1)},"cases":[\n${rows.join(",\n")}\n]}`;
}

function spreadOf(values) {
  if (values.length === 0) return null;
  const of = sorted(values);
  return { low: of[0], median: of[Math.floor((of.length - 1) / 2)], high: of.at(-1) };
}

function shown(value) {
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString("en-US");
  return value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
}

/** The median, and the lowest and the highest if there are several. */
function spread(values) {
  const of = spreadOf(values ?? []);
  if (!of) return "–";
  return values.length === 1 ? shown(of.median) : `${shown(of.median)} (${shown(of.low)}–${shown(of.high)})`;
}

const escaped = (text) => text.replaceAll("|", "\\|");

// Columns of a workload's table: what is shown of its latencies and figures. Those of which no case has a value are left out.
const COST = ["server_cpu_us_per_message", "client_cpu_us_per_message"];
const DISK = ["disk write and sync", "disk write and sync, paced", "confirm_p50_per_disk_p50"];
const REST = ["messages_per_sync", "written_bytes_per_published_byte", "device_bytes_per_published_byte", "server_rss_peak_mib", "others_cpu_pct"];
const COLUMNS = {
  lone: ["confirm", ...DISK, "server_cpu_us_per_message", "others_cpu_pct"],
  steady: ["confirmed_per_s", "delivered_per_s", "confirm", "deliver", ...DISK, ...COST, "busiest_client_core_pct", ...REST],
  "fan-out": ["delivered_per_s", "confirm", "deliver", "server_cpu_us_per_delivery", "client_cpu_us_per_message", "server_rss_peak_mib", "others_cpu_pct"],
  frozen: ["delivered_per_s", "confirm", "deliver", "server_rss_avg_mib", "server_rss_peak_mib", "server_rss_grown_mib", "others_cpu_pct"],
  "queue-lifecycle": ["confirmed_per_s", "delivered_per_s", "deliver", "settle", "nacked", "dead", ...COST, "messages_per_sync", "server_rss_peak_mib", "others_cpu_pct"],
  http: ["post_per_s", "empty_204_per_s", "post_per_empty_pct", "confirm", "disk write and sync", ...COST, "others_cpu_pct"],
  "many-topics": ["post_per_s", "confirm", "disk write and sync", ...COST, ...REST],
  "catch-up": ["read_per_s", "read_mib_per_s", "bare_gets_mib_per_s", "read_per_bare_gets_pct", "blocks_missed", "gets", "get_bytes_per_object_byte", "replay", ...COST, "server_rss_peak_mib", "others_cpu_pct"],
  recovery: ["first_confirm_s", "journal_mib", "recovered_mib_per_s", "read_mib_per_s", "others_cpu_pct"],
  "journal commit": ["of_bare_loop_pct", "several_an_append_of_bare_loop_pct", "us_per_record", "several_an_append_us_per_record", "bare_loop_us_per_record"],
  "journal recovery": ["scan_gib_per_s", "bare_checksum_gib_per_s"],
  idle: ["core_pct", "grown_rss_bytes_per_topic", "grown_rss_bytes_per_socket", "grown_rss_bytes_per_connection", "server_rss_mib", "threads", "syncs", "others_cpu_pct"],
};
const ANY = ["confirmed_per_s", "delivered_per_s", "post_per_s", "confirm", "deliver", "disk write and sync", ...COST, ...REST];

function table(workload, cases) {
  const wanted = COLUMNS[workload] ?? ANY;
  const columns = wanted.filter((name) => cases.some((it) => it.latencies[name] || it.figures[name]));
  const heading = (name) => (cases.some((it) => it.latencies[name]) ? `${name} p50 / p99 / p99.9 µs` : name.replaceAll("_", " "));
  const cell = (it, name) => {
    const latency = it.latencies[name];
    if (!latency) return spread(it.figures[name]);
    // The 99.9th of fewer messages is one of the last few.
    const last = Math.min(...latency.count) >= 1000 ? spread(latency.p999) : "–";
    return [spread(latency.p50), spread(latency.p99), last].join(" / ");
  };
  const lines = [`### ${workload}`, "", `| case | runs | ${columns.map(heading).join(" | ")} |`, `|---|--:|${"--:|".repeat(columns.length)}`];
  for (const it of cases) {
    const count = it.voided > 0 ? `${it.runs - it.voided} of ${it.runs}` : it.runs;
    lines.push(`| ${escaped(it.case)}${it.busy > 0 ? " (busy)" : ""} | ${count} | ${columns.map((name) => cell(it, name)).join(" | ")} |`);
  }
  lines.push("");
  for (const command of unique(cases.map((it) => it.command))) lines.push(`- \`${command}\``);
  for (const it of cases) {
    for (const reason of unique(it.void)) lines.push(`- void (${it.case}): ${reason}`);
    for (const remark of it.remarks) lines.push(`- ${it.case}: ${remark}`);
  }
  return lines.join("\n");
}

// What a reader of a set must know, beside its cases.
const ABOUT = {
  apart: "The cases of `cold`, with the store as far from the product as one machine allows: behind a link of 2.5 Gbit/s each way, with a processor only while nobody else wants it, its data in memory.",
};

function section(found) {
  const { cores, cpu, kernel, memory_gib } = found.machine;
  const disk = found.disk_sync_p50_us;
  const lines = [`## Set ${found.set}`, ""];
  if (ABOUT[found.set]) lines.push(ABOUT[found.set], "");
  const synced = disk ? `A write of 4 KiB and its sync, one after the other between runs: p50 ${disk.median} µs (${disk.low}–${disk.high}). ` : "";
  lines.push(`Machine: ${cores} processors (${cpu}), ${memory_gib} GiB, Linux ${kernel}. ${synced}Commit ${found.build || "unknown"}, ${found.days.join(", ")}.`, "");
  const busy = found.cases.filter((it) => it.busy > 0).length;
  if (busy > 0) lines.push(`**Not a quiet machine**: in ${busy} of ${found.cases.length} cases others took more than ${OTHERS_PCT_MAX} % of the processors; they are marked.`, "");
  for (const workload of new Set(found.cases.map((it) => it.workload))) {
    lines.push(table(workload, found.cases.filter((it) => it.workload === workload)), "");
  }
  return lines.join("\n");
}

const TEXT = `# Results

Written by \`scripts/bench-results\`; change nothing here by hand.

Server, load generator and disk share one small machine, whose speed drifts by a fifth within minutes. So each figure is the median of
its runs, with the lowest and the highest in brackets; the disk's own write and sync of the same minute stands beside it; and only
figures of one set are to be compared. Times are in microseconds from when a message was due. A p99.9 of fewer than 1,000 messages is
left out. Runs whose identity check failed, or whose generator was late, are void and not counted.

PEERS[Experiments](experiments.md) keep what was tried, and [operations](../operations.md#measuring) says what a run is.
`;

function document(directory) {
  const files = readdirSync(directory).filter((file) => file.endsWith(".json"));
  const order = ["quick", "low-rate", "stream", "queue", "scale", "full", "cold", "apart", "benches", "peers"];
  const rank = (file) => (order.indexOf(basename(file, ".json")) + order.length + 1) % (order.length + 1);
  const sets = files.sort((a, b) => rank(a) - rank(b)).map((file) => JSON.parse(readFileSync(join(directory, file), "utf8")));
  const rows = targets(sets, spread).map((row) => `| ${row.map(escaped).join(" | ")} |`);
  const table = ["## Targets", "", "| what | at least | measured | reached | by |", "|---|---|---|---|---|", ...rows, ""];
  const own = sets.filter(({ set }) => set !== "peers");
  // It is written by scripts/bench-peers, which may not have run here.
  const beside = existsSync(join(directory, "..", "peers.md")) ? "[Peers](peers.md) has Weir beside others; [what bounds it](bounds.md) says why targets are missed, and [where the time goes](profile.md) what each stage costs. " : "";
  return [TEXT.replace("PEERS", beside), table.join("\n"), ...own.map(section)].join("\n").trimEnd();
}

const [what, ...args] = process.argv.slice(2);
if (what === "summary") console.log(summary(...args));
else if (what === "document") console.log(document(...args));
else throw new Error("summary or document");
