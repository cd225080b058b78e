import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { createGuardedFolder } from "./guarded-folder.js";

const sleeper = { file: process.execPath, args: ["-e", "setTimeout(() => {}, 60_000)"] };

test("a released folder is gone, and so is what ran in it", async () => {
  const folder = createGuardedFolder();
  const { pid, ended } = await folder.start(sleeper);
  await folder.release();
  expect(existsSync(folder.path)).toBe(false);
  expect(() => process.kill(pid, 0)).toThrow("ESRCH");
  await expect(ended).resolves.toBe("its guard has gone");
});

test("a command that fails says what it printed", async () => {
  const folder = createGuardedFolder();
  const failing = { file: process.execPath, args: ["-e", "console.log('out of luck'); process.exit(3)"] };
  await expect(folder.run(failing)).rejects.toThrow(/ended with 3:\nout of luck/);
  await expect(folder.run({ file: "/none/such", args: [] })).rejects.toThrow("cannot run /none/such: spawn");
  await folder.release();
});

// A killed process closes its pipes and does nothing more, so that must be enough for the guard.
test("the guard cleans up when its owner has died", async () => {
  const path = mkdtempSync(join(tmpdir(), "postbox-guard-"));
  const guard = spawn(process.execPath, [join(import.meta.dirname, "guard.js"), path], { stdio: "pipe" });
  guard.stdin.write(`${JSON.stringify(sleeper)}\n`);
  const [line] = await once(guard.stdout, "data");
  const { started } = JSON.parse(String(line));
  expect(process.kill(started, 0)).toBe(true);

  guard.stdout.destroy();
  guard.stdin.destroy();
  await once(guard, "exit");
  expect(existsSync(path)).toBe(false);
  expect(() => process.kill(started, 0)).toThrow("ESRCH");
});
