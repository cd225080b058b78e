import { execFile } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";

const root = join(import.meta.dirname, "..");
const library = join(root, "packages", "postbox");
const protobuf = join(root, "packages", "protobuf");
const testkit = join(root, "packages", "testkit");
let project: string;

// A project that installed postbox, @postbox/protobuf with its one required peer, and @postbox/testkit without the
// optional packages of its suites. It is in a temporary folder, so that no parent folder has a node_modules.
beforeAll(() => {
  if (!existsSync(join(library, "dist", "exports/index.js")))
    throw new Error("packages/postbox is not built: npm run build");
  project = mkdtempSync(join(tmpdir(), "postbox-no-driver-"));
  for (const part of ["dist", "package.json"]) {
    cpSync(join(library, part), join(project, "node_modules", "postbox", part), { recursive: true });
    cpSync(join(protobuf, part), join(project, "node_modules", "@postbox", "protobuf", part), { recursive: true });
    cpSync(join(testkit, part), join(project, "node_modules", "@postbox", "testkit", part), { recursive: true });
  }
  const peer = join("node_modules", "@bufbuild", "protobuf");
  cpSync(join(root, peer), join(project, peer), { recursive: true });
});
afterAll(() => rmSync(project, { recursive: true, force: true }));

const doors = [
  "postbox",
  "postbox/memory",
  "postbox/connect",
  "postbox/schedule",
  "@postbox/protobuf",
  "@postbox/testkit/app",
];

test.each(doors)("%s can be imported without any driver, generator or test runner", async (name) => {
  const program = `console.log(Object.keys(await import("${name}")).length)`;
  const { stdout, stderr } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", program], {
    cwd: project,
    timeout: 10_000,
  });
  expect(stderr).toBe("");
  expect(Number(stdout)).toBeGreaterThan(0);
});

test("a cron expression without its parser says what to install", async () => {
  const program = `
    import { createOutbox, defineEvent, silent } from "postbox";
    import { memoryStore } from "postbox/memory";
    import { createSchedule } from "postbox/schedule";
    const schema = { "~standard": { version: 1, vendor: "test", validate: (value) => ({ value }) } };
    const message = defineEvent({ type: "a.B", schema }).message({});
    const outbox = createOutbox(memoryStore(), { source: "/s" });
    const every = createSchedule(outbox, { e: { everyMs: 1000, message } });
    await every.start();
    await every.stop();
    const cron = createSchedule(outbox, { c: { cron: "* * * * *", message } }, { telemetry: silent });
    await cron.start().catch((error) => console.log(error.message));`;
  const { stdout, stderr } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", program], {
    cwd: project,
    timeout: 10_000,
  });
  expect(stderr).toBe("");
  expect(stdout.trim()).toBe("[driver-missing] cannot load 'croner'; install it beside postbox: npm install croner");
});

test("the test would notice a driver", async () => {
  const program = 'await import("pg")';
  const run = promisify(execFile)(process.execPath, ["--input-type=module", "-e", program], { cwd: project });
  await expect(run).rejects.toThrow("ERR_MODULE_NOT_FOUND");
});

test("the test would notice a test runner", async () => {
  const program = 'await import("@postbox/testkit")';
  const run = promisify(execFile)(process.execPath, ["--input-type=module", "-e", program], { cwd: project });
  await expect(run).rejects.toThrow(/ERR_MODULE_NOT_FOUND|Cannot find package/);
});

test("@postbox/testkit/app settles without a test runner", async () => {
  const program = `
    import { defineEvent } from "postbox";
    import { testMessaging } from "@postbox/testkit/app";
    const schema = { "~standard": { version: 1, vendor: "none", validate: (value) => ({ value }) } };
    const Ping = defineEvent({ type: "a.Ping", schema });
    const Pong = defineEvent({ type: "a.Pong", schema });
    const app = testMessaging({ handledElsewhere: [Pong] });
    app.messaging.consumer().on(Ping, ({ n }) => [Pong.message({ n: n + 1 })]);
    await app.deliver(Ping, { n: 1 });
    await app.settled();
    console.log(JSON.stringify(await app.published(Pong)));
    await app.close();`;
  const { stdout, stderr } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", program], {
    cwd: project,
    timeout: 10_000,
  });
  expect(stderr).toBe("");
  expect(stdout).toBe('[{"n":2}]\n');
});
