// `npm run simulate:mutants` removes each safeguard in turn, and counts the seeds until the simulation fails.
import { spawn } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { type Mutant, mutants } from "./mutants.js";

export interface Found {
  readonly guard: string;
  /** The first seed that failed, or the name of the saved plan that did; undefined if none failed. */
  readonly by?: number | string;
  /** The rule that it broke. */
  readonly rule?: string;
}

const root = resolve(import.meta.dirname, "../..");

/** Plays up to `seeds` histories with a library that lacks one safeguard, and then the saved plans. */
export async function tryMutant(mutant: Mutant, seeds: number): Promise<Found> {
  const { guard } = mutant;
  const folder = mkdtempSync(join(tmpdir(), "postbox-mutant-"));
  try {
    copyInto(folder);
    mutate(join(folder, mutant.file), mutant.changes);
    const played = await run(folder, "--seeds", `${seeds}`, "--first", "--workers", "1");
    const [, seed, rule] = /^seed (\d+) broke ([a-z-]+)/m.exec(played) ?? [];
    if (seed !== undefined && rule !== undefined) return { guard, by: Number(seed), rule };
    for (const saved of readdirSync(join(root, "simulation/saved"))) {
      const replayed = await run(folder, "--plan", join(root, "simulation/saved", saved), "--trace");
      const [, rule] = /^seed \d+ breaks:\n +([a-z-]+):/m.exec(replayed) ?? [];
      if (rule !== undefined) return { guard, by: saved, rule };
    }
    return { guard };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Copies the built packages, so that a mutant changes only its own copy. */
function copyInto(folder: string): void {
  mkdirSync(join(folder, "node_modules/@postbox"), { recursive: true });
  for (const part of ["package.json", "dist"]) {
    cpSync(join(root, "packages/postbox", part), join(folder, "node_modules/postbox", part), { recursive: true });
  }
  symlinkSync(join(root, "packages/testkit"), join(folder, "node_modules/@postbox/testkit"));
  cpSync(join(root, "simulation/dist"), join(folder, "simulation/dist"), { recursive: true });
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
}

function mutate(file: string, changes: Mutant["changes"]): void {
  writeFileSync(file, without(readFileSync(file, "utf8"), file, changes));
}

/** Throws if a mutant no longer matches the code. */
export function checkMutant({ file, changes }: Mutant): void {
  const built = join(root, file.replace("node_modules/postbox", "packages/postbox"));
  without(readFileSync(built, "utf8"), file, changes);
}

function without(text: string, file: string, changes: Mutant["changes"]): string {
  let changed = text;
  for (const [from, to] of changes) {
    if (changed.split(from).length !== 2) {
      throw new Error(`${file} does not have exactly one '${from}'; bring the mutant up to date`);
    }
    changed = changed.replace(from, () => to);
  }
  return changed;
}

function run(folder: string, ...args: readonly string[]): Promise<string> {
  return new Promise((done, fail) => {
    const child = spawn(process.execPath, ["simulation/dist/main.js", ...args], { cwd: folder });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.on("data", (chunk) => {
        output += chunk;
      });
    }
    child.once("error", fail);
    child.once("close", (code) =>
      code === 0 || /^seed \d+ br(oke|eaks)/m.test(output) ? done(output) : fail(new Error(output)),
    );
  });
}

if (process.argv[1] === import.meta.filename) {
  const left = [...mutants];
  let missed = 0;
  const inTurn = async () => {
    for (let mutant = left.shift(); mutant !== undefined; mutant = left.shift()) {
      const { guard, by, rule } = await tryMutant(mutant, 2000);
      console.log(by === undefined ? `NOT FOUND: ${guard}` : `${by}: ${guard} (${rule})`);
      if (by === undefined) missed++;
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() }, inTurn));
  process.exitCode = missed > 0 ? 1 : 0;
}
