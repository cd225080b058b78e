// Packs the library and uses the tarball as its users do: with every TypeScript in heavy/consumers, with require, and
// in Jest.
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const folder = resolve("heavy/consumers");
if (!runs("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).passed)
  throw new Error(`cannot install ${folder}`);
const packed = mkdtempSync(join(tmpdir(), "postbox-consumers-"));
try {
  const answer = execFileSync("npm", [
    "pack",
    "./packages/postbox",
    "--json",
    "--ignore-scripts",
    `--pack-destination=${packed}`,
  ]);
  const [{ filename }] = Object.values(JSON.parse(answer));
  const library = join(folder, "node_modules/postbox");
  mkdirSync(library, { recursive: true });
  execFileSync("tar", ["-xzf", join(packed, filename), "--strip-components=1", "-C", library]);
} finally {
  rmSync(packed, { recursive: true, force: true });
}

const nodenext = ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "--types", "node"];
const bundler = [
  "--noEmit",
  "--strict",
  "--module",
  "esnext",
  "--moduleResolution",
  "bundler",
  "--target",
  "es2022",
  "--types",
  "node",
];
const versions = readdirSync(join(folder, "node_modules"))
  .filter((name) => /^typescript-\d/.test(name))
  .map((name) => name.slice("typescript-".length));
const tsc = (version) => join(folder, "node_modules", `typescript-${version}`, "bin/tsc");
const isFrom = (version, first) => Number(version) >= first;
const checks = versions.flatMap((version) => {
  const compiles = (what, file, options) => [
    `TypeScript ${version}: ${what}`,
    process.execPath,
    // TypeScript 6.0 and later reject the command line because the workspace has a tsconfig.json.
    [tsc(version), ...(isFrom(version, 6) ? ["--ignoreConfig"] : []), ...options, file],
  ];
  return [
    compiles("declarations of postbox, all checked", "orders.mts", nodenext),
    compiles("with a bundler", "orders.mts", bundler),
    compiles("with pg and skipLibCheck", "orders-in-postgres.mts", [...nodenext, "--skipLibCheck"]),
    ...(isFrom(version, 5.7) ? [compiles("with pg, all checked", "orders-in-postgres.mts", nodenext)] : []),
    ...(isFrom(version, 5.8) ? [compiles("import = require", "orders.cts", nodenext)] : []),
  ];
});
checks.push(["require", process.execPath, ["orders.cjs"]]);
checks.push(["Jest", process.execPath, ["--experimental-vm-modules", join(folder, "node_modules/jest/bin/jest.js")]]);

let failed = 0;
for (const [name, command, args] of checks) {
  const { passed, output } = runs(command, args);
  console.log(`${passed ? "✓" : "✗"} ${name}`);
  if (passed) continue;
  failed += 1;
  console.error(output);
}
process.exitCode = failed > 0 ? 1 : 0;

function runs(command, args) {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd: folder, encoding: "utf8", timeout: 5 * 60_000 });
  return { passed: status === 0, output: `${stdout}${stderr}` };
}
