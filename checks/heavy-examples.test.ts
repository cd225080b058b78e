import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { describeOnEach } from "@postbox/testkit/servers";
import pg from "pg";
import { expect, it, onTestFinished, vi } from "vitest";
import { story } from "../examples/02-transactions/src/story.js";

describeOnEach("postgres", ({ url }) => {
  it.each(["prisma", "typeorm", "mikro-orm"])("heavy/%s/example.ts tells the story of all libraries", async (name) => {
    const database = `story_${randomBytes(6).toString("hex")}`;
    const admin = new pg.Client(url);
    await admin.connect();
    onTestFinished(async () => {
      await admin.query(`DROP DATABASE IF EXISTS ${database} WITH (FORCE)`);
      await admin.end();
    });
    await admin.query(`CREATE DATABASE ${database}`);
    const own = new URL(url);
    own.pathname = database;

    const log = vi.spyOn(console, "log").mockImplementation(() => {});
    const { argv } = process;
    onTestFinished(() => {
      log.mockRestore();
      process.argv = argv;
    });
    process.argv = ["node", "example.ts", own.href];
    // Import the example again for the next server.
    vi.resetModules();
    await import(join(import.meta.dirname, "..", "heavy", name, "example.ts"));
    expect(log.mock.calls.map(([line]) => `${line}\n`).join("")).toBe(story);
  });
});
