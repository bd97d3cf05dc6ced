// What scripts/soak-cold runs. Its parameters come from the environment; see there.
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, openSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const { DIR, MINIO, WEIR_BIN } = process.env;
const number = (name, otherwise) => Number(process.env[name] ?? otherwise);
const size = (text) => {
  const [, count, unit] = /^(\d+)(KiB|MiB|GiB)$/.exec(text);
  return Number(count) * { KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 }[unit];
};
const message = size(process.env.MESSAGE ?? "64KiB");
const total = Math.floor((number("GIB", 20) * 2 ** 30) / message);
const kills = number("KILLS", Math.max(2, Math.ceil(number("GIB", 20) / 2)));
const writers = number("WRITERS", 8);
const seed = number("SEED", Date.now() % 2 ** 31) || 1;
const partitions = 4;
// Every so many messages one waits until it is archived.
const archivedEvery = 200;
const bucket = "weir-soak";
const store = "http://127.0.0.1:" + (20_000 + (process.pid % 10_000));
const secrets = { AWS_ACCESS_KEY_ID: "weir-soak", AWS_SECRET_ACCESS_KEY: "weir-soak-secret", AWS_REGION: "us-east-1" };
const env = { ...process.env, ...secrets, AWS_ENDPOINT: store, AWS_ALLOW_HTTP: "true" };
const data = join(DIR, "data");

let dice = seed;
function random(below) {
  dice ^= dice << 13;
  dice ^= dice >>> 17;
  dice ^= dice << 5;
  return (dice >>> 0) % below;
}

// Identity and noise: each message can be told from every other by all of its bytes.
function value(n) {
  let text = `${n} `;
  for (let at = 0; text.length < message; at++) text += createHash("sha256").update(`${seed}:${n}:${at}`).digest("hex");
  return text.slice(0, message);
}

// Whatever ends this, and be it an error, ends what it started.
const children = new Set();
process.on("exit", () => children.forEach((child) => child.kill("SIGKILL")));
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(1));

let starts = 0;
async function run(program, args, isReady, more = {}) {
  const log = openSync(join(DIR, `log-${starts++}`), "w");
  const child = spawn(program, args, { env: { ...env, ...more }, stdio: ["ignore", log, log] });
  children.add(child);
  child.ended = new Promise((resolve) => child.once("exit", resolve));
  child.ended.then(() => children.delete(child));
  for (const until = Date.now() + 120_000; !(await isReady()); await sleep(20)) {
    if (child.exitCode !== null || Date.now() > until) throw new Error(`${program} is not ready: ${readFileSync(join(DIR, `log-${starts - 1}`))}`);
  }
  return child;
}

async function kill(child) {
  child.kill("SIGKILL");
  await child.ended;
}

function startStore() {
  mkdirSync(join(DIR, "store", bucket), { recursive: true });
  const ready = () => fetch(`${store}/minio/health/ready`).then((answer) => answer.ok, () => false);
  const root = { MINIO_ROOT_USER: "weir-soak", MINIO_ROOT_PASSWORD: "weir-soak-secret", MINIO_UPDATE: "off" };
  return run(MINIO, ["server", "--quiet", "--address", new URL(store).host, join(DIR, "store")], ready, root);
}

let url;
async function startNode() {
  const ready = join(DIR, `ready-${starts}`);
  const args = ["dev", "--listen", "127.0.0.1:0", "--data-dir", data, "--object-store", `s3://${bucket}/soak`];
  args.push("--journal-max", process.env.JOURNAL ?? "2GiB", "--journal-file", "32MiB", "--ready-file", ready);
  const node = await run(WEIR_BIN, args, () => existsSync(ready) && readFileSync(ready, "utf8").includes("://"));
  url = readFileSync(ready, "utf8").split("\n")[0].trim();
  return node;
}

let [minio, node] = [await startStore(), null];
node = await startNode();
const json = { "content-type": "application/json" };
const made = await fetch(`${url}/v1/topics/soak`, { method: "PUT", headers: json, body: JSON.stringify({ partitions }) });
if (made.status !== 201) throw new Error(await made.text());

const placed = new Array(total);
const confirmedAt = new Float64Array(total);
const archived = new Set();
let [next, done, waits] = [0, 0, 0];

async function publish(n) {
  const body = value(n);
  const isSure = n % archivedEvery === 0;
  const headers = { "content-type": "text/plain", "idempotency-key": `"${n}"` };
  if (isSure) Object.assign(headers, { confirm: "archived", "confirm-deadline-ms": "20000" });
  for (;;) {
    let answer;
    try {
      answer = await fetch(`${url}/v1/topics/soak/messages`, { method: "POST", headers, body });
      const text = await answer.text();
      if (answer.status === 200 || answer.status === 201 || answer.status === 202) {
        const at = JSON.parse(text);
        if (at.offset !== undefined) {
          placed[n] = at.partition * 2 ** 40 + at.offset;
          confirmedAt[n] = Date.now();
          if (at.level === "archived") archived.add(n);
          return;
        }
      } else if (answer.status < 500 && answer.status !== 429 && answer.status !== 409) {
        throw Object.assign(new Error(`message ${n}: ${answer.status} ${text}`), { isFinal: true });
      }
    } catch (error) {
      if (error.isFinal) throw error;
    }
    waits++;
    await sleep(100);
  }
}

const began = Date.now();
const killed = { node: 0, store: 0 };
let stopping = false;
async function killer() {
  for (let round = 1; round <= kills; round++) {
    const when = Math.floor((total * round) / (kills + 1)) + random(Math.ceil(total / (kills + 1) / 4));
    while (done < when && !stopping) await sleep(50);
    if (stopping) return;
    if (round % 2 === 1) {
      await kill(node);
      node = await startNode();
      killed.node++;
    } else {
      await kill(minio);
      await sleep(random(5_000));
      minio = await startStore();
      killed.store++;
    }
  }
}
async function writer() {
  while (next < total) {
    await publish(next++);
    done++;
  }
}
const killing = killer();
await Promise.all(Array.from({ length: writers }, writer));
stopping = true;
await killing;
const seconds = (Date.now() - began) / 1000;
const lostAt = Date.now();
await kill(node);
rmSync(data, { recursive: true });

const restoring = Date.now();
const restored = spawnSync(WEIR_BIN, ["restore", "--json", "--bucket", `s3://${bucket}/soak`, "--data-dir", data], { env });
if (restored.status !== 0) throw new Error(`restore: ${restored.stderr}`);
const report = JSON.parse(restored.stdout);
node = await startNode();
const restoreSeconds = (Date.now() - restoring) / 1000;

const found = new Uint8Array(total);
let read = 0;
const reading = Date.now();
for (let partition = 0; partition < partitions; partition++) {
  for (let at = 0; ; ) {
    const line = `${url}/v1/topics/soak/messages?partition=${partition}&from=${at}&limit=100&max_bytes=3000000`;
    const answer = await fetch(line);
    if (answer.status !== 200) throw new Error(`${partition}:${at}: ${await answer.text()}`);
    const page = await answer.json();
    for (const { offset, data: text } of page.messages) {
      const n = Number(text.split(" ", 1)[0]);
      if (offset !== at || text !== value(n)) throw new Error(`${partition}:${at} is another message`);
      if (found[n]++) throw new Error(`message ${n} is there twice`);
      if (placed[n] !== undefined && placed[n] !== partition * 2 ** 40 + offset) throw new Error(`message ${n} is elsewhere`);
      at++;
      read++;
    }
    if (page.up_to_date) break;
  }
}
const missing = [...found.keys()].filter((n) => !found[n]);
const broken = missing.filter((n) => archived.has(n));
const rpo = missing.length ? (lostAt - Math.min(...missing.map((n) => confirmedAt[n]))) / 1000 : 0;
await kill(node);
await kill(minio);
const figures = {
  seed, messages: total, bytes: total * message, journal: process.env.JOURNAL ?? "2GiB", publish_seconds: seconds, killed, waits,
  archived_confirmed: archived.size, restore_seconds: restoreSeconds, restored_messages: report.messages,
  read_back: read, read_seconds: (Date.now() - reading) / 1000, lost_after_the_newest_manifest: missing.length, rpo_seconds: rpo,
};
console.log(JSON.stringify(figures, null, 2));
if (broken.length > 0 || read + missing.length !== total) {
  console.error(`archived and missing: ${broken.slice(0, 20)}`);
  process.exitCode = 1;
}
