// What is too long for every run: the whole test suite and the demo on each Node.js of heavy/node-versions.
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { delimiter, resolve } from "node:path";

const folder = "heavy/node-versions";
run("npm", ["ci"], { cwd: folder });
const versions = readdirSync(`${folder}/node_modules`).filter((name) => /^node\d/.test(name));
if (versions.length === 0) throw new Error(`${folder} has no Node.js for ${process.platform}-${process.arch}`);

for (const version of versions) {
  const bin = resolve(folder, "node_modules", version, "bin");
  const env = { ...process.env, PATH: `${bin}${delimiter}${process.env.PATH}` };
  console.log(`\n── ${version}`);
  for (const command of ["--version", "run test", "run demo"]) {
    const program = command.startsWith("-") ? "node" : "npm";
    run(program, command.split(" "), { env });
  }
}

function run(command, args, options) {
  const { status, error } = spawnSync(command, args, { stdio: "inherit", timeout: 30 * 60_000, ...options });
  if (status !== 0) throw error ?? new Error(`${command} ${args.join(" ")} ended with ${status}`);
}
