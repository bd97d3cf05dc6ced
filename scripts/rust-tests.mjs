// Runs the tests of every crate, some test binaries at once: most tests wait for processes, disks and clocks, and `cargo test` runs one
// binary after the other, each as long as its longest test. Then the documentation's tests.
//
// Usage: scripts/rust-tests.mjs [ARGUMENT of the test binaries…]; RUST_TESTS_AT_ONCE binaries at once, 2 unless told.
import { spawn } from "node:child_process";
import { basename, dirname } from "node:path";
import { createInterface } from "node:readline";

const AT_ONCE = Number(process.env.RUST_TESTS_AT_ONCE ?? 2);
if (!Number.isInteger(AT_ONCE) || AT_ONCE < 1) {
  console.error(`RUST_TESTS_AT_ONCE is ${process.env.RUST_TESTS_AT_ONCE}; how many test binaries run at once, 1 or more`);
  process.exit(2);
}
// So long that others should begin before they have ended.
const FIRST = ["bench", "weir_storage_node", "cold", "node"];

/** Runs a command; its exit code, and what it said unless it says that itself. */
function run(command, args, options, onLine) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, options);
    const said = [];
    for (const stream of [child.stdout, child.stderr].filter(Boolean)) {
      createInterface({ input: stream }).on("line", onLine ?? ((line) => said.push(line)));
    }
    child.on("error", reject);
    // Behind the last line: `exit` comes before what is still in the pipes.
    child.on("close", (code, signal) => resolve({ ended: signal ?? code, said: said.join("\n") }));
  });
}

/** The test binaries of the workspace, built. */
async function built() {
  const found = [];
  const args = ["test", "--locked", "--workspace", "--no-run", "--message-format=json-render-diagnostics"];
  const { ended } = await run("cargo", args, { stdio: ["ignore", "pipe", "inherit"] }, (line) => {
    const message = JSON.parse(line);
    if (message.reason !== "compiler-artifact" || !message.profile.test || !message.executable) return;
    const { name, kind } = message.target;
    const crate = basename(dirname(message.manifest_path));
    found.push({ name, label: `${crate}: ${kind[0]} ${name}`, path: message.executable, folder: dirname(message.manifest_path) });
  });
  if (ended !== 0) process.exit(1);
  const place = (test) => (FIRST.indexOf(test.name) + FIRST.length + 1) % (FIRST.length + 1);
  return found.sort((one, other) => place(one) - place(other));
}

const waiting = await built();
if (waiting.length === 0) {
  console.error("cargo names no test binary that it has built: nothing was tested");
  process.exit(1);
}
const failed = [];
const times = [];
async function worker() {
  for (let test = waiting.shift(); test; test = waiting.shift()) {
    const began = Date.now();
    const options = { cwd: test.folder, stdio: ["ignore", "pipe", "pipe"] };
    const { ended, said } = await run(test.path, process.argv.slice(2), options);
    const seconds = (Date.now() - began) / 1000;
    times.push([seconds, test.label]);
    console.log(`\n     Running ${test.label} (${seconds.toFixed(1)} s)\n${said}`);
    if (ended !== 0) failed.push(`${test.label}: ${ended}`);
  }
}
await Promise.all(Array.from({ length: AT_ONCE }, worker));
const documented = await run("cargo", ["test", "--locked", "--workspace", "--doc", "--quiet"], { stdio: "inherit" });
if (documented.ended !== 0) failed.push("documentation");
times.sort(([one], [other]) => other - one);
console.log(`\nlongest: ${times.slice(0, 8).map(([seconds, label]) => `${label} ${seconds.toFixed(0)} s`).join(", ")}`);
if (failed.length > 0) {
  console.error(`failed:\n  ${failed.join("\n  ")}`);
  process.exit(1);
}
