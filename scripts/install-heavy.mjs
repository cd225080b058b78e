// Installs the folders of heavy/ that `npm test` needs and runs their generators. Skips folders whose manifests have
// not changed since their last installation.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

for (const name of ["prisma", "typeorm", "mikro-orm", "protobuf", "reference"]) {
  const folder = join(import.meta.dirname, "..", "heavy", name);
  const made = madeOf(folder);
  // Written last: an interrupted installation leaves no mark and is repeated. `npm ci` removes the mark.
  const mark = join(folder, "node_modules", ".installed");
  if (existsSync(mark) && readFileSync(mark, "utf8") === made) continue;
  console.log(`installing heavy/${name}`);
  // No package here needs its install scripts; Prisma's would only download unused engines.
  npm(folder, ["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
  npm(folder, ["run", "generate", "--if-present"]);
  writeFileSync(mark, made);
}

function madeOf(folder) {
  const hash = createHash("sha256");
  for (const file of readdirSync(folder).sort()) {
    if (/\.(json|prisma)$/.test(file)) hash.update(`${file}\n${readFileSync(join(folder, file), "utf8")}`);
  }
  return hash.digest("hex");
}

function npm(folder, args) {
  // `prisma generate` downloads an engine unless this variable names one. It never runs the engine, so any program will
  // do.
  const env = { ...process.env, PRISMA_SCHEMA_ENGINE_BINARY: process.execPath };
  const { status } = spawnSync("npm", args, { cwd: folder, env, stdio: "inherit", timeout: 10 * 60_000 });
  if (status !== 0) throw new Error(`npm ${args.join(" ")} failed in ${folder}`);
}
