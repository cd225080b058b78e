import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { describeOnEach } from "@postbox/testkit/servers";
import pg from "pg";
import { afterAll, beforeAll, expect, it } from "vitest";
import { pageText, root, until } from "./snippets.js";

const guide = "docs/guides/start.md";

/** The programs of the guide, by the file name in their first line. */
function programs(): Record<string, string> {
  const blocks = pageText(guide).matchAll(/```js\n\/\/ (\S+\.mjs)\n(.*?)```/gs);
  return Object.fromEntries([...blocks].map(([, name, code]) => [name, code]));
}

describeOnEach("postgres", (server) => {
  const name = `start_${randomBytes(6).toString("hex")}`;
  const folder = join(root, ".tmp", name);
  const admin = new pg.Pool({ connectionString: server.url, max: 1 });
  const url = new URL(server.url);
  url.pathname = name;
  const running: ChildProcess[] = [];

  beforeAll(async () => {
    mkdirSync(folder, { recursive: true });
    for (const [file, code] of Object.entries(programs())) writeFileSync(join(folder, file), code);
    await admin.query(`CREATE DATABASE ${name}`);
  });
  afterAll(async () => {
    for (const child of running) child.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
    await admin.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
    await admin.end();
  });

  /** Starts a program of the guide. `lines` grows with what it prints. */
  function start(file: string, more: Readonly<Record<string, string>> = {}) {
    const child = spawn(process.execPath, [file], {
      cwd: folder,
      env: { ...process.env, DATABASE_URL: url.href, PORT: "0", ...more },
      stdio: ["ignore", "pipe", "pipe"],
    });
    running.push(child);
    const lines: string[] = [];
    createInterface({ input: child.stdout as NodeJS.ReadableStream }).on("line", (line) => lines.push(line));
    createInterface({ input: child.stderr as NodeJS.ReadableStream }).on("line", (line) => lines.push(line));
    return { child, lines, exited: once(child, "exit") };
  }

  async function listening({ lines }: ReturnType<typeof start>): Promise<string> {
    let port: string | undefined;
    await until(async () => {
      port = /^listening on (\d+)$/m.exec(lines.join("\n"))?.[1];
      return port !== undefined;
    });
    return `http://127.0.0.1:${port}`;
  }

  it("the service of the guide exits by itself if it is stopped while the broker is unreachable", async () => {
    const shop = start("shop.mjs", { BROKER_URL: "amqp://guest:guest@127.0.0.1:1" });
    await until(() => shop.lines.some((line) => line.includes("transport.lost")));
    shop.child.kill("SIGTERM");
    shop.child.kill("SIGINT");
    expect(await shop.exited).toEqual([0, null]);
    expect(shop.lines.join("\n")).not.toMatch(/listening|uncaught|more than once/i);
  });

  it("the service of the guide does what the guide says, and exits by itself", async () => {
    expect(Object.keys(programs())).toEqual(["events.mjs", "messaging.mjs", "shop.mjs", "retry.mjs"]);
    const pool = new pg.Pool({ connectionString: url.href, max: 1 });
    // A pool that has ended may still be closing connections when DROP DATABASE … WITH (FORCE) cuts them.
    pool.on("error", () => {});
    try {
      const shop = start("shop.mjs");
      const address = await listening(shop);
      const place = async (order: string) => (await fetch(`${address}/${order}`, { method: "POST" })).status;
      expect(await place("order-1/30")).toBe(201);
      expect(await place("order-1/30")).toBe(409);
      await until(async () => shop.lines.includes("invoice for order-1"));
      await until(async () => (await pool.query("SELECT FROM postbox.outbox_messages")).rowCount === 0);
      const [, ...queries] = /```sql\n(.*?)```/s.exec(pageText(guide))?.[1]?.trim().split("\n") ?? [];
      const inbox = await pool.query(queries[0] as string);
      expect(inbox.rows).toMatchObject([{ type: "shop.orders.v1.OrderPlaced", status: "processed" }]);

      shop.child.kill("SIGTERM");
      expect(await shop.exited).toEqual([0, null]);
      const retry = start("retry.mjs");
      expect(await retry.exited).toEqual([0, null]);
      expect(retry.lines).toEqual(["handled again: 0"]);
      expect((await pool.query("SELECT order_id FROM invoices")).rows).toEqual([{ order_id: "order-1" }]);
    } finally {
      await pool.end();
    }
  });
});
