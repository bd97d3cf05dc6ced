// docs/performance/profile.md from what scripts/bench-profile kept in a directory: of each path its stacks, its command, its result.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { budgetOf, budgetOfAll } from "./budget.mjs";
import { STAGES, sums } from "./stages.mjs";

const PATHS = {
  publish: ["published, batches of 64, confirmed", "server_cpu_us_per_message"],
  deliver: ["published and delivered to one reader", "server_cpu_us_per_message"],
  queue: ["published, leased, settled", "server_cpu_us_per_message"],
  "fan-out": ["delivered to one of 32 readers", "server_cpu_us_per_delivery"],
  http: ["one message per POST, 64 connections", "server_cpu_us_per_message"],
  lone: ["one message at a time, 1,000/s", "server_cpu_us_per_message"],
};
// A stage of less than this share of every path says nothing.
const SHARE_MIN = 0.005;

const [directory] = process.argv.slice(2);
const read = (path, end) => readFileSync(join(directory, `${path}.${end}`), "utf8");
const paths = Object.keys(PATHS)
  .filter((path) => existsSync(join(directory, `${path}.folded`)))
  .map((path) => {
    const run = JSON.parse(read(path, "json"));
    const figure = run.figures.find(({ name }) => name === PATHS[path][1]);
    if (!figure) throw new Error(`the run of ${path} has no ${PATHS[path][1]}: was the server's process known?`);
    return { path, run, us: figure.value, command: read(path, "command").trim(), ...sums(read(path, "folded")) };
  });
if (paths.length === 0) throw new Error(`nothing is measured in ${directory}`);

const row = (cells) => `| ${cells.join(" | ")} |`;
const number = (us) => (us >= 100 ? us.toFixed(0) : us >= 10 ? us.toFixed(1) : us.toFixed(2));
const measured = ({ us, all }, samples) => (us * samples) / all;
/** Of what it may cost, where that is known; in bold if it is a tenth more, and more than can be told. */
const besides = (us, budget) => (budget === undefined ? number(us) : us > 1.1 * budget + 0.02 ? `**${number(us)}** of ${number(budget)}` : `${number(us)} of ${number(budget)}`);
const head = [row(["", ...paths.map(({ path }) => `[${path}](flames/${path}.svg)`)]), row(["---", ...paths.map(() => "--:")])];
const byStage = (name) => row([name, ...paths.map((path) => besides(measured(path, path.stages.get(name) ?? 0), budgetOf(path.path, name)))]);
const byThread = (name) => row([name, ...paths.map((path) => number(measured(path, path.threads.get(name) ?? 0)))]);
const sum = row(["all", ...paths.map(({ path, us }) => besides(us, budgetOfAll(path)))]);
const counts = (of) => (name) => paths.some((path) => (path[of].get(name) ?? 0) / path.all >= SHARE_MIN);
const threads = [...new Set(paths.flatMap((path) => [...path.threads.keys()]))].filter(counts("threads")).sort();
const { cpu, cores, kernel } = paths[0].run.machine ?? {};

console.log(`# Where the time goes

Written by \`scripts/bench-profile\`; change nothing here by hand.

The processor time that the server takes for a message, in microseconds, by what it was spent on. A cell \`0.09 of 0.10\` has what was
measured and what the stage may cost: the path's target, divided among its stages (\`scripts/profile/budget.mjs\`). Bold is what costs too
much. [What bounds it](bounds.md) says why, and what to try next. The names of the paths link to flame graphs.

\`perf record -e cpu-clock\` takes 997 samples a second of gateway and storage node, which run in one process. The share of a stage's
samples is multiplied by the processor time per message that \`weir bench\` measured in the same run. A sample counts for the innermost
function; a call into the system counts for what it was made for. The build is an ordinary release with frame pointers, not that of
\`scripts/release\`.

Machine: ${cores} processors (${cpu}), Linux ${kernel}. Commit ${paths[0].run.build || "unknown"}, ${paths[0].run.at?.slice(0, 10)}.

${paths.map(({ path, command, all }) => `- **${path}**: ${PATHS[path][0]}; \`weir bench ${command}\`, ${(all / 1e9).toFixed(1)} s of a processor`).join("\n")}

## By stage

${[...head, ...STAGES.filter(counts("stages")).map(byStage), sum].join("\n")}

## By thread

${[...head, ...threads.map(byThread)].join("\n")}`);
