import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, onTestFinished, test } from "vitest";

/** Runs another Vitest on these files, with only this reporter. */
async function reportOn(files: Record<string, string>): Promise<{ lines: string[]; exitCode: number | null }> {
  const folder = mkdtempSync(join(tmpdir(), "postbox-report-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  const vitest = join(dirname(createRequire(import.meta.url).resolve("vitest/package.json")), "vitest.mjs");
  const reporter = join(import.meta.dirname, "server-report.ts");
  const args = [vitest, "run", "--root", folder, "--globals", "--reporter", reporter];
  return new Promise((resolve) => {
    const child = execFile(process.execPath, args, { timeout: 15_000 }, (_, stdout) =>
      resolve({ lines: stdout.trim().split("\n"), exitCode: child.exitCode }),
    );
  });
}

test("the last line counts what passed, failed and was skipped", async () => {
  const { lines, exitCode } = await reportOn({
    "a.test.js": 'test("a", () => {}); test("b", () => {}); test.skip("c", () => {}); test.todo("d");',
  });
  expect(lines.at(-1)).toBe("2 passed, 0 failed, 2 skipped");
  expect(lines).toContain(`on Node.js ${process.versions.node}`);
  expect(exitCode).toBe(0);
});

test("lists failures, including those outside of a test", async () => {
  const { lines, exitCode } = await reportOn({
    "does-not-load.test.js": 'import "./nowhere.js"; test("a", () => {});',
    "hook.test.js": 'describe("x", () => { beforeAll(() => { throw new Error("no"); }); test("a", () => {}); });',
    "fails.test.js": 'test("a", () => { throw new Error("no"); });',
    "rejects.test.js": 'test("a", async () => { Promise.reject(new Error("no")); await new Promise(setImmediate); });',
  });
  expect(lines.filter((line) => line.startsWith("failed: ")).sort()).toEqual([
    expect.stringMatching(/^failed: does-not-load\.test\.js: .*nowhere\.js/),
    "failed: fails.test.js > a: no",
    "failed: hook.test.js > x: no",
    "failed: outside of any test: no",
  ]);
  expect(lines.at(-1)).toBe("1 passed, 4 failed, 1 skipped");
  expect(exitCode).toBe(1);
});
