import { randomBytes } from "node:crypto";
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { RunsReceiver } from "postbox";
import type { SqliteStore } from "postbox/sqlite";
import { afterAll, beforeAll, expect, it } from "vitest";
import { compile, root, snippets, until } from "./snippets.js";

const guide = "docs/guides/sqlite.md";
const folder = join(root, ".tmp", `sqlite_${randomBytes(6).toString("hex")}`);
const load = <Exports>(file: string): Promise<Exports> => import(join(folder, file));

beforeAll(async () => {
  mkdirSync(folder, { recursive: true });
  process.env.SHOP_FILE = join(folder, "shop.db");
  await compile(folder, snippets(guide));
});
afterAll(() => {
  delete process.env.SHOP_FILE;
  rmSync(folder, { recursive: true, force: true });
});

it("the guide to SQLite publishes in a synchronous transaction, and handles from the outbox", async () => {
  interface Orders {
    readonly placeOrder: (id: string, total: number) => void;
    readonly database: { prepare(sql: string): { all(): unknown[] }; close(): void };
  }
  const { store } = await load<{ store: SqliteStore }>("store.ts");
  const { placeOrder, database } = await load<Orders>("orders.ts");
  const { billing, start } = await load<{ billing: RunsReceiver; start: () => Promise<unknown> }>("billing.ts");
  await start();
  placeOrder("1", 20);
  placeOrder("2", 30);
  expect(() => placeOrder("2", 30)).toThrow();
  await until(() => database.prepare("SELECT * FROM invoices").all().length === 2);
  expect(database.prepare("SELECT order_id FROM invoices ORDER BY 1").all()).toEqual([
    { order_id: "1" },
    { order_id: "2" },
  ]);
  await until(async () => (await store.admin.list()).messages.length === 0);
  await billing.stop();
  database.close();
  store.close();
});
