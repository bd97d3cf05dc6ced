// Every relative link in the Markdown documents points at a file that exists. Reads only.
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
if (broken.length > 0) {
  console.error(broken.join("\n"));
  process.exit(1);
}
console.log(`links in ${documents.length} documents: ok`);
