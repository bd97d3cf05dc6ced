// Writes .br and .gz next to every built file worth compressing. index.html is left alone: the gateway renders
// it per request.
import { readFile, writeFile } from 'node:fs/promises';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { built } from './files.mjs';

for (const path of await built()) {
  if (!/\.(js|css|svg)$/.test(path)) continue;
  const bytes = await readFile(path);
  const quality = { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } };
  for (const [ending, packed] of [
    ['br', brotliCompressSync(bytes, quality)],
    ['gz', gzipSync(bytes, { level: 9 })],
  ]) {
    if (packed.length < bytes.length) await writeFile(`${path}.${ending}`, packed);
  }
}
