// Reads what `cargo bench -p weir-journal --bench journal` prints, and writes it as results of `weir bench` are written: one line of
// JSON a case. `node scripts/bench-lines.mjs ROUND PRINTED PRINTED-THROUGH-THE-PAGE-CACHE`
import { readFileSync } from "node:fs";
import { cpus, release, totalmem } from "node:os";

const [round, ...files] = process.argv.slice(2);
const [printed, buffered] = files.map((file) => readFileSync(file, "utf8"));
const repetition = Number(round);
const COMMAND = "cargo bench -p weir-journal --bench journal";
const [{ model }, { length: cores }] = [cpus()[0], cpus()];
const machine = { cores, cpu: model.trim(), kernel: release(), memory_gib: Math.floor(totalmem() / 2 ** 30) };
const run = (workload, name, figures, command = COMMAND) => ({
  workload,
  case: name,
  command,
  repetition,
  at: new Date().toISOString(),
  build: process.env.WEIR_BENCH_BUILD,
  machine,
  latencies: [],
  figures: Object.entries(figures).map(([name, value]) => ({ name, value })),
});

// outstanding, bytes a commit, records bare, same bytes bare, after a rest, and twice: journal, its share of the bare loop.
const share = String.raw`([\d.]+)\s+(\d+) % \(\d+ to \d+\)`;
const ROW = new RegExp(String.raw`^\s*(\d+)\s+\d+\s+([\d.]+)\s+[\d.]+\s+[\d.]+\s+${share}\s+${share}\s*$`, "gm");
const commits = [...printed.matchAll(ROW)].map(([, width, bare, us, pct, severalUs, severalPct]) =>
  run("journal commit", `${width} outstanding, 1 KiB`, {
    of_bare_loop_pct: Number(pct),
    several_an_append_of_bare_loop_pct: Number(severalPct),
    us_per_record: Number(us),
    several_an_append_us_per_record: Number(severalUs),
    bare_loop_us_per_record: Number(bare),
  }),
);

/** The middle of criterion's three throughputs, in GiB a second. */
function throughput(text, name) {
  const found = text.match(new RegExp(String.raw`^${name}[\s\S]*?thrpt:\s+\[[\d.]+ \S+ ([\d.]+) (\w+)/s`, "m"));
  if (!found) throw new Error(`the bench printed no throughput of ${name}`);
  const unit = { GiB: 1, MiB: 1 / 1024 }[found[2]];
  if (!unit) throw new Error(`${found[2]}/s is not known`);
  return Number(found[1]) * unit;
}

if (commits.length !== 4) throw new Error(`the bench printed ${commits.length} of 4 rows of commits`);
const bare = throughput(printed, "recovery/bare checksum");
const scan = (name, text, command) =>
  run("journal recovery", `1 GiB of 16 KiB entries, ${name}`, { scan_gib_per_s: throughput(text, "recovery/open"), bare_checksum_gib_per_s: bare }, command);
const scans = [scan("from the disk", printed), scan("from the page cache", buffered, `BUFFERED=1 ${COMMAND} -- recovery/open`)];
for (const line of [...commits, ...scans]) console.log(JSON.stringify(line));
