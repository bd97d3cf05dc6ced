// Shape and walls that the compiler does not hold: file and function length, the width of comments, module rings inside a
// crate, which crate may depend on which, where unsafe and durable file access may live. Reads only.
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, relative } from "node:path";

const FILE_LINES_MAX = 600;
const GENERATED = "console/src/api/schema.d.ts";
const FUNCTION_LINES_MAX = 100; // clippy holds 70 lines of code; this counts comments too
const COMMENT_COLUMNS_MAX = 120; // rustfmt leaves comments as they are; .editorconfig asks for 110
const ROOMS = ["protocol/src", "protocol/transport/src", "storage-node/journal/src", "storage-node/tier/src", "storage-node/src", "gateway/src", "cli/src"];

// Direct dependencies a room must never have (docs/architecture.md, rooms).
const FORBIDDEN = {
  "weir-protocol": ["tokio", "axum", "object_store", "hyper", "weir-transport", "weir-journal", "weir-storage-node", "weir-gateway"],
  "weir-transport": ["axum", "hyper", "weir-journal", "weir-storage-node", "weir-gateway", "object_store"],
  "weir-journal": ["tokio", "axum", "object_store", "weir-protocol", "weir-transport", "weir-storage-node", "weir-gateway"],
  "weir-tier": ["axum", "hyper", "weir-transport", "weir-journal", "weir-storage-node", "weir-gateway"],
  "weir-storage-node": ["object_store", "foyer", "axum", "hyper", "weir-gateway"],
  "weir-gateway": ["weir-journal", "weir-storage-node", "openraft", "object_store"],
};

// Text that may stand only in the named room.
const ONLY_IN = [
  { room: "storage-node/journal/src", what: "syncing files", pattern: /\.(sync_all|sync_data)\(\)/ },
  // The one call elsewhere asks the allocator, which only the binary chooses, to give back what is free.
  { room: "storage-node/journal/src", but: "cli/src/memory.rs", what: "unsafe code", pattern: /\bunsafe\s*(\{|impl|fn)/ },
];

const problems = [];

function* sources(dir, suffix) {
  for (const name of readdirSync(dir)) {
    const path = join(dir, name);
    if (statSync(path).isDirectory()) yield* sources(path, suffix);
    else if (suffix.test(name)) yield path;
  }
}

const isTest = (path) => /(^|\/)(tests?|benches|testing)(\/|\.rs$)|_tests?\.rs$/.test(path);

// Source without column-0 `#[cfg(test)] mod x { … }` blocks; rustfmt's layout is relied upon.
function production(text) {
  const lines = text.split("\n");
  const kept = [];
  for (let i = 0; i < lines.length; i++) {
    if (lines[i].startsWith("#[cfg(test)]")) {
      let j = i + 1;
      while (/^(#\[|\/\/)/.test(lines[j] ?? "")) j++;
      if (/^(pub )?mod \w+ \{$/.test(lines[j] ?? "")) {
        while (j < lines.length && lines[j] !== "}") j++;
        i = j;
        continue;
      }
    }
    kept.push(lines[i]);
  }
  return kept;
}

// Tables and drawings, which are indented or have lines, cannot be broken.
function longComments(path, lines) {
  for (const [i, line] of lines.entries()) {
    if (/^\s*\/\/[/!]? ?(?![\s/!])[^|─│]*$/.test(line) && [...line].length > COMMENT_COLUMNS_MAX) problems.push(`${path}:${i + 1}: a comment of ${[...line].length} columns, limit ${COMMENT_COLUMNS_MAX}`);
  }
}

function longFunctions(path, lines) {
  for (let i = 0; i < lines.length; i++) {
    const head = /^(\s*)(?:pub(?:\([^)]*\))? )?(?:const )?(?:async )?(?:unsafe )?fn (\w+)/.exec(lines[i]);
    if (!head) continue;
    let open = i;
    while (open < lines.length && !/[{;}]$/.test(lines[open])) open++;
    if (!lines[open]?.endsWith("{")) continue;
    let end = open + 1;
    while (end < lines.length && !lines[end].startsWith(`${head[1]}}`)) end++;
    if (end - i + 1 > FUNCTION_LINES_MAX) problems.push(`${path}: fn ${head[2]} has ${end - i + 1} lines, limit ${FUNCTION_LINES_MAX}`);
  }
}

function importedModules(code) {
  const names = new Set([...code.matchAll(/\bcrate::(\w+)/g)].map((found) => found[1]));
  for (const [, body] of code.matchAll(/\buse crate::\{([\s\S]*?)\};/g)) {
    let depth = 0;
    let word = "";
    for (const char of `${body},`) {
      if (char === "," && depth === 0) {
        names.add(word.trim().split(/::|\s|\{/)[0]);
        word = "";
        continue;
      }
      depth += (char === "{") - (char === "}");
      word += char;
    }
  }
  return names;
}

// Reports every ring of modules: a module that can be reached from itself.
function rings(room, graph) {
  for (const start of graph.keys()) {
    const queue = [...graph.get(start)].map((next) => [next, [start, next]]);
    const seen = new Set();
    while (queue.length > 0) {
      const [at, path] = queue.shift();
      if (at === start) {
        if (start === [...path].sort()[0]) problems.push(`${room}: modules form a ring: ${path.join(" → ")}`);
        break;
      }
      if (seen.has(at)) continue;
      seen.add(at);
      for (const next of graph.get(at) ?? []) queue.push([next, [...path, next]]);
    }
  }
}

for (const room of ROOMS) {
  const modules = new Set(readdirSync(room).map((name) => name.replace(/\.rs$/, "")));
  for (const top of ["lib", "main", "bin"]) modules.delete(top);
  const graph = new Map([...modules].map((name) => [name, new Set()]));
  for (const path of sources(room, /\.rs$/)) {
    const inside = relative(room, path);
    longComments(path, readFileSync(path, "utf8").split("\n"));
    if (isTest(inside)) continue;
    const lines = production(readFileSync(path, "utf8"));
    const code = lines.filter((line) => !line.trimStart().startsWith("//")).join("\n");
    longFunctions(path, lines);
    for (const rule of ONLY_IN) if (room !== rule.room && path !== rule.but && rule.pattern.test(code)) problems.push(`${path}: ${rule.what} belongs in ${rule.room}`);
    const self = inside.split("/")[0].replace(/\.rs$/, "");
    for (const name of importedModules(code)) if (graph.has(self) && modules.has(name) && name !== self) graph.get(self).add(name);
  }
  rings(room, graph);
}

// Whole files, tests too: whoever mends a test reads all of it.
const tracked = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard", "*.rs", "*.ts", "*.tsx", "*.css", "*.js", "*.mjs"]);
for (const path of new Set(tracked.toString().split("\n"))) {
  if (path === "" || path === GENERATED || !existsSync(path)) continue;
  const length = readFileSync(path, "utf8").split("\n").length - 1;
  if (length > FILE_LINES_MAX) problems.push(`${path}: ${length} lines, limit ${FILE_LINES_MAX}`);
}

// Clippy reads the nearest clippy.toml and no other: those of rooms begin with the workspace's.
const lints = readFileSync("clippy.toml", "utf8").trimEnd();
for (const room of ROOMS) {
  const path = join(dirname(room), "clippy.toml");
  if (existsSync(path) && !readFileSync(path, "utf8").startsWith(lints)) problems.push(`${path}: does not begin as clippy.toml does`);
}

const metadata = JSON.parse(
  execFileSync("cargo", ["metadata", "--locked", "--offline", "--no-deps", "--format-version", "1"], { maxBuffer: 1 << 26 }),
);
for (const { name, dependencies } of metadata.packages) {
  for (const dependency of dependencies.filter((d) => d.kind === null)) {
    if (FORBIDDEN[name]?.includes(dependency.name)) problems.push(`${name} must never depend on ${dependency.name}`);
  }
}

if (problems.length > 0) {
  console.error(problems.join("\n"));
  process.exit(1);
}
console.log("shape and walls: ok");
