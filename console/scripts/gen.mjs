// Types of the API from ../openapi/openapi.json. `--check` fails if the committed file is not what would be
// written, and writes nothing.
import { readFile, writeFile } from 'node:fs/promises';
import openapiTS, { astToString } from 'openapi-typescript';

const target = new URL('../src/api/schema.d.ts', import.meta.url);
const source = process.env.WEIR_OPENAPI
  ? new URL(`file://${process.env.WEIR_OPENAPI}`)
  : new URL('../../openapi/openapi.json', import.meta.url);
const text = `// Written by \`npm run gen\` from openapi/openapi.json. Do not edit.\n${astToString(await openapiTS(source))}`;

if (process.argv.includes('--check')) {
  if ((await readFile(target, 'utf8')) !== text) {
    console.error('src/api/schema.d.ts does not match openapi/openapi.json: run `npm run gen`');
    process.exit(1);
  }
} else {
  await writeFile(target, text);
}
