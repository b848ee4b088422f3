// openapi-typescript: types made of the service's OpenAPI document, with which use.ts is compiled and run.

import { execFileSync } from "node:child_process";
import { copyFileSync } from "node:fs";

const here = import.meta.dirname;
const run = (program, ...options) => {
  execFileSync(process.execPath, [`node_modules/${program}`, ...options], { cwd: here, stdio: "inherit" });
};

copyFileSync("use.ts", `${here}/use.ts`);
run("openapi-typescript/bin/cli.js", `${process.env.CERBERANK_URL}/openapi.json`, "--output", "schema.d.ts");
run("typescript/bin/tsc", "--strict", "--noUncheckedIndexedAccess", "--module", "nodenext", "--target", "es2022", "use.ts");
await import("./use.js");
