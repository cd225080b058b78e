// Runs the `check` script of every examples/NN-name, one after the other. Every example must have one, so that none
// goes stale.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";

const folders = existsSync("examples") ? readdirSync("examples").filter((name) => /^\d\d-/.test(name)) : [];
const failed = folders.filter((name) => {
  const { scripts } = JSON.parse(readFileSync(`examples/${name}/package.json`, "utf8"));
  console.log(`\n── ${name}`);
  if (!scripts?.check) {
    console.error(`examples/${name}/package.json has no script "check"`);
    return true;
  }
  const { status } = spawnSync("npm", ["run", "--silent", "check"], {
    cwd: `examples/${name}`,
    stdio: "inherit",
    timeout: 2 * 60_000,
  });
  return status !== 0;
});

console.log(
  `\nexamples: ${folders.length - failed.length} passed, ${failed.length} failed ${failed.join(" ")}`.trimEnd(),
);
process.exitCode = failed.length > 0 ? 1 : 0;
