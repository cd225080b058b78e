import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";

const compiler = join(import.meta.dirname, "..", "node_modules", "typescript", "bin", "tsc");

// A test and not part of `npm run check`, which does not install heavy/.
it("the tests in heavy/ compile, with the types of the libraries that are installed there", async () => {
  const args = [compiler, "-p", join(import.meta.dirname, "heavy-types"), "--pretty", "false"];
  const output: string = await promisify(execFile)(process.execPath, args).then(
    ({ stdout }) => stdout,
    (failed) => failed.stdout || String(failed),
  );
  expect(output).toBe("");
});
