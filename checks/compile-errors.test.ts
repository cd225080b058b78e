import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";

const folder = join(import.meta.dirname, "compile-errors");
const compiler = join(import.meta.dirname, "..", "node_modules", "typescript", "bin", "tsc");

/** The compiler's errors by file and line. A continuation line belongs to the error above it. */
async function compilerErrors(): Promise<Map<string, string>> {
  const run = promisify(execFile)(process.execPath, [compiler, "-p", folder, "--pretty", "false"], {
    maxBuffer: 16 * 1024 * 1024,
  });
  const output: string = await run.then(
    ({ stdout }) => stdout,
    (failed) => failed.stdout,
  );
  const errors = new Map<string, string>();
  let place = "";
  for (const line of output.split("\n")) {
    const head = /^(\S+)\((\d+),\d+\): error (.*)$/.exec(line);
    if (head !== null) place = `${(head[1] as string).split("/").at(-1)}:${head[2]}`;
    if (place !== "" && line !== "") errors.set(place, `${errors.get(place) ?? ""}${head?.[3] ?? line}\n`);
  }
  return errors;
}

it("wrong use does not compile, and the compiler says why in a sentence; right use compiles", async () => {
  const errors = await compilerErrors();
  const lines = readFileSync(join(folder, "wrong-use.ts"), "utf8").split("\n");
  const expected = lines.flatMap((line, index) => {
    const text = /^\/\/ error: (.*)$/.exec(line)?.[1];
    return text === undefined ? [] : [{ place: `wrong-use.ts:${index + 2}`, text }];
  });
  expect(expected.length).toBeGreaterThan(20);
  for (const { place, text } of expected) {
    // The compiler escapes the quotes within the text.
    expect(errors.get(place)?.replaceAll('\\"', '"'), `${place} must fail with: ${text}`).toContain(text);
    errors.delete(place);
  }
  expect(Object.fromEntries(errors), "errors that nobody expected").toEqual({});
});
