// What is too long for every run: the long tests, then the whole test suite and the demo on each Node.js of
// heavy/node-versions.
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { delimiter, resolve } from "node:path";

const folder = "heavy/node-versions";
if (!succeeds("npm", ["ci"], { cwd: folder })) throw new Error(`cannot install ${folder}`);
const versions = readdirSync(`${folder}/node_modules`).filter((name) => /^node\d/.test(name));
if (versions.length === 0) throw new Error(`${folder} has no Node.js for ${process.platform}-${process.arch}`);

const failed = [];
console.log("\n── long tests");
const long = { env: { ...process.env, POSTBOX_TEST_LONG: "1" } };
if (!succeeds("npx", ["tsc", "-b"]) || !succeeds("npx", ["vitest", "run"], long)) failed.push("long tests");
for (const version of versions) {
  const bin = resolve(folder, "node_modules", version, "bin");
  const env = { ...process.env, PATH: `${bin}${delimiter}${process.env.PATH}` };
  for (const script of ["test", "demo"]) {
    console.log(`\n── ${version}: ${script}`);
    if (!succeeds("npm", ["run", script], { env })) failed.push(`${version}: ${script}`);
  }
}
console.log(failed.length > 0 ? `\nfailed: ${failed.join(", ")}` : `\nall passed, also on ${versions.join(", ")}`);
process.exitCode = failed.length > 0 ? 1 : 0;

function succeeds(command, args, options) {
  return spawnSync(command, args, { stdio: "inherit", timeout: 60 * 60_000, ...options }).status === 0;
}
