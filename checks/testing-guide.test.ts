import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { testMessaging } from "@postbox/testkit/app";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { named, root, snippets, tableOf } from "./snippets.js";

const guide = "docs/guides/testing.md";
const folder = join(root, ".tmp", `testing_${randomBytes(6).toString("hex")}`);
const run = promisify(execFile);

describe("the guide to testing", () => {
  beforeAll(() => mkdirSync(folder, { recursive: true }));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it("has tests that compile against the built packages, and pass by node:test", async () => {
    const files = snippets(guide);
    const tests = Object.keys(files).filter((name) => name.endsWith(".test.ts"));
    expect(tests).toEqual(["shop.test.ts", "stores.test.ts", "knex.test.ts"]);
    for (const [name, code] of Object.entries(files)) writeFileSync(join(folder, name), code);
    const compilerOptions = {
      composite: false,
      declaration: false,
      declarationMap: false,
      outDir: "out",
      rootDir: ".",
    };
    const project = { extends: join(root, "tsconfig.base.json"), compilerOptions, include: ["*.ts"] };
    writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(project));
    const compiler = join(root, "node_modules", "typescript", "bin", "tsc");
    await run(process.execPath, [compiler, "-p", folder]).catch(({ stdout }) => expect(stdout).toBe(""));

    const built = tests.map((name) => join(folder, "out", name.replace(/\.ts$/, ".js")));
    // Remove what tells Node.js that it runs inside another test runner.
    const { NODE_OPTIONS: _options, NODE_TEST_CONTEXT: _context, ...env } = process.env;
    const { stdout } = await run(process.execPath, ["--test", "--test-reporter=tap", ...built], { env }).catch(
      (error: { stdout: string }) => error,
    );
    expect(stdout).toContain("# fail 0");
    expect(stdout).toContain("# pass 7");
  });

  it("lists everything that testMessaging returns", async () => {
    await using app = testMessaging();
    const listed = tableOf(guide, "of `testMessaging(…)` | what it does").flatMap(([cell]) =>
      named(cell).map((name) => /^\w+/.exec(name)?.[0] as string),
    );
    expect([...new Set(listed)].sort()).toEqual(Object.keys(app).sort());
  });
});
