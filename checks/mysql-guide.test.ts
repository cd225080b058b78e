import { randomBytes } from "node:crypto";
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { describeOnEach } from "@postbox/testkit/servers";
import { createConnection, type Pool } from "mysql2/promise";
import type { RunsReceiver } from "postbox";
import type { MysqlStore } from "postbox/mysql";
import { laneOf } from "postbox/store";
import { afterAll, beforeAll, expect, it } from "vitest";
import { compile, root, snippets, until } from "./snippets.js";

const guide = "docs/guides/mysql.md";

describeOnEach("mariadb", ({ url }) => {
  const name = `mysql_${randomBytes(6).toString("hex")}`;
  const folder = join(root, ".tmp", name);
  const load = <Exports>(file: string): Promise<Exports> => import(join(folder, file));
  const onServer = async (sql: string) => {
    const connection = await createConnection(url);
    await connection.query(sql);
    await connection.end();
  };

  beforeAll(async () => {
    mkdirSync(folder, { recursive: true });
    await onServer(`CREATE DATABASE ${name}`);
    const database = new URL(url);
    database.pathname = `/${name}`;
    process.env.SHOP_DATABASE = database.href;
    await compile(folder, snippets(guide));
  });
  afterAll(async () => {
    delete process.env.SHOP_DATABASE;
    await onServer(`DROP DATABASE IF EXISTS ${name}`);
    rmSync(folder, { recursive: true, force: true });
  });

  it("the guide to MySQL publishes in a transaction and in SQL, and handles from the outbox", async () => {
    const { store, pool } = await load<{ store: MysqlStore<unknown>; pool: Pool }>("store.ts");
    const { placeOrder } = await load<{ placeOrder: (id: string, total: number) => Promise<void> }>("orders.ts");
    const { billing, start } = await load<{ billing: RunsReceiver; start: () => Promise<unknown> }>("billing.ts");
    await start();
    await placeOrder("1", 20);
    await expect(placeOrder("1", 30)).rejects.toThrow("Duplicate entry");
    const [, sql = ""] = /```sql\n(.*?)```/s.exec(readFileSync(join(root, guide), "utf8")) ?? [];
    const connection = await pool.getConnection();
    await connection.beginTransaction();
    for (const statement of sql.split(";\n").filter((text) => text.trim() !== "")) await connection.query(statement);
    const [rows] = await connection.query("SELECT lane FROM postbox_pending WHERE `key` = 'order-1'");
    expect(rows).toEqual([{ lane: laneOf("order-1") }]);
    await connection.commit();
    connection.release();
    const invoices = async () => (await pool.query("SELECT order_id FROM invoices ORDER BY 1"))[0] as unknown[];
    await until(async () => (await invoices()).length === 2);
    expect(await invoices()).toEqual([{ order_id: "1" }, { order_id: "order-1" }]);
    await until(async () => (await store.admin.list()).messages.length === 0);
    await billing.stop();
    await pool.end();
  });
});
