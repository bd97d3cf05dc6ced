// Fails if the built console is larger than it may be. Sizes are brotli, as the gateway sends them; `entry` is
// every script that index.html asks for before anything is shown.
import { readFile, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { brotliCompressSync } from 'node:zlib';
import { built, dist } from './files.mjs';

const KB = 1000;
const BUDGET = { entry: 130 * KB, lazy: 60 * KB, css: 12 * KB, total: 1500 * KB };

const paths = await built();
const packed = async (path) => brotliCompressSync(await readFile(path)).length;
const html = await readFile(join(dist, 'index.html'), 'utf8');
const first = new Set(
  [...html.matchAll(/(?:src|href)="\.\/([^"]+\.js)"/g)].map((match) => basename(match[1])),
);

let failed = false;
function judge(what, bytes, limit) {
  const bad = bytes > limit;
  failed ||= bad;
  console.log(
    `${bad ? 'OVER ' : 'ok   '} ${(bytes / KB).toFixed(1).padStart(7)} / ${limit / KB} kB  ${what}`,
  );
}

let entry = 0;
let css = 0;
let total = 0;
for (const path of paths) {
  total += (await stat(path)).size;
  if (path.endsWith('.css')) css += await packed(path);
  if (!path.endsWith('.js')) continue;
  const size = await packed(path);
  if (first.has(basename(path))) entry += size;
  else judge(`lazy ${basename(path)}`, size, BUDGET.lazy);
}
judge('entry scripts', entry, BUDGET.entry);
judge('styles', css, BUDGET.css);
judge('dist as it is embedded', total, BUDGET.total);
if (first.size === 0) {
  console.log('OVER  no entry script found in dist/index.html');
  failed = true;
}
process.exit(failed ? 1 : 0);
