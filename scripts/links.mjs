// Every relative link in the Markdown documents points at a file that exists, and every test that docs/reliability.md names
// is there. Reads only.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";

const documents = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard", "*.md"]).toString().trim().split("\n");
const broken = [];
for (const document of documents.filter(Boolean)) {
  const text = readFileSync(document, "utf8").replace(/```[\s\S]*?```/g, "");
  for (const [, target] of text.matchAll(/\]\(([^)\s]+)\)/g)) {
    if (/^[a-z]+:|^#/.test(target)) continue;
    const path = join(dirname(document), target.split("#")[0]);
    if (!existsSync(path)) broken.push(`${document}: ${target} does not exist`);
  }
}
const sources = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard", "*.rs"]).toString().trim().split("\n");
const code = sources.filter((source) => existsSync(source)).map((source) => readFileSync(source, "utf8")).join("\n");
for (const [, test] of readFileSync("docs/reliability.md", "utf8").matchAll(/`([a-z0-9]+(?:_[a-z0-9]+){3,})`/g)) {
  if (!code.includes(`fn ${test}(`)) broken.push(`docs/reliability.md: no test is named ${test}`);
}
if (broken.length > 0) {
  console.error(broken.join("\n"));
  process.exit(1);
}
console.log(`links in ${documents.length} documents: ok`);
