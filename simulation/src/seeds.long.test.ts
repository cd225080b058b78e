import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { expect, it } from "vitest";

it("50,000 seeds break no rule", { timeout: 60 * 60_000 }, () => {
  const program = join(import.meta.dirname, "../dist/main.js");
  const { status } = spawnSync(process.execPath, [program, "--seeds", "50000", "--from", "2001"], { stdio: "inherit" });
  expect(status).toBe(0);
});
