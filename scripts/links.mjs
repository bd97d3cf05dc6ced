// Every relative link in the Markdown documents points at a file that exists and at a heading that is in it, and every test
// that docs/reliability.md names is there. Reads only.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";

const listed = (pattern) =>
  execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard", pattern]).toString().split("\n").filter((path) => path && existsSync(path));
const withoutCode = (path) => readFileSync(path, "utf8").replace(/^ *```[\s\S]*?^ *```/gm, "");

// What a heading is called in a link, as GitHub does it: small, without punctuation, with hyphens for spaces.
function anchors(path) {
  const names = new Set();
  for (const [, heading] of withoutCode(path).matchAll(/^#{1,6} +(.+?) *$/gm)) {
    const text = heading.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").toLowerCase();
    const name = text.replace(/[^\p{L}\p{M}\p{N}\p{Pc} -]/gu, "").replaceAll(" ", "-");
    let free = name;
    for (let n = 1; names.has(free); n++) free = `${name}-${n}`;
    names.add(free);
  }
  return names;
}

const documents = listed("*.md");
const broken = [];
for (const document of documents) {
  for (const [, target] of withoutCode(document).matchAll(/\]\(([^)\s]+)\)/g)) {
    if (/^[a-z]+:/.test(target)) continue;
    const [file, anchor] = target.split("#");
    const path = file === "" ? document : normalize(join(dirname(document), file));
    if (!existsSync(path)) broken.push(`${document}: ${target} does not exist`);
    else if (anchor !== undefined && path.endsWith(".md") && !anchors(path).has(anchor)) broken.push(`${document}: ${target}: ${path} has no such heading`);
  }
}
const code = listed("*.rs").map((source) => readFileSync(source, "utf8")).join("\n");
for (const [, test] of readFileSync("docs/reliability.md", "utf8").matchAll(/`([a-z0-9]+(?:_[a-z0-9]+){3,})`/g)) {
  if (!code.includes(`fn ${test}(`)) broken.push(`docs/reliability.md: no test is named ${test}`);
}
if (broken.length > 0) {
  console.error(broken.join("\n"));
  process.exit(1);
}
console.log(`links in ${documents.length} documents: ok`);
