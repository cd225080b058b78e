import { randomBytes } from "node:crypto";
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { describeOnEach } from "@postbox/testkit/servers";
import pg from "pg";
import { createRouter, defineEvent, type Messaging, transaction } from "postbox";
import type { defineMiddleware, InTransaction } from "postbox/middleware";
import { postgresStore } from "postbox/postgres";
import { afterAll, beforeAll, expect, it } from "vitest";
import { z } from "zod";
import { compile, root, snippets, until } from "./snippets.js";

/** What the reader already has: a database with two tables. */
const given = {
  "db.ts": `
    import { drizzle } from "drizzle-orm/node-postgres";
    import { integer, pgTable, text } from "drizzle-orm/pg-core";
    import pg from "pg";
    export const pool = new pg.Pool({ connectionString: process.env.README_DATABASE_URL });
    export const db = drizzle(pool);
    export const orders = pgTable("orders", { id: text().primaryKey(), total: integer().notNull() });
    export const invoices = pgTable("invoices", { orderId: text("order_id").notNull() });`,
};

describeOnEach("postgres", (server) => {
  const name = `readme_${randomBytes(6).toString("hex")}`;
  const folder = join(root, ".tmp", name);
  const admin = new pg.Pool({ connectionString: server.url, max: 1 });

  beforeAll(async () => {
    mkdirSync(folder, { recursive: true });
    await admin.query(`create database ${name}`);
  });
  afterAll(async () => {
    rmSync(folder, { recursive: true, force: true });
    await admin.query(`drop database if exists ${name} with (force)`);
    await admin.end();
  });

  it("the snippets of the README compile, and do what they say", async () => {
    const files = { ...given, ...snippets("README.md") };
    expect(Object.keys(files).sort()).toEqual([
      "billing.ts",
      "db.ts",
      "events.ts",
      "main.ts",
      "messaging.ts",
      "orders.ts",
      "parts.ts",
    ]);
    await compile(folder, files);

    const url = new URL(server.url);
    url.pathname = name;
    process.env.README_DATABASE_URL = url.href;
    const load = (file: string) => import(join(folder, file));
    const { pool } = (await load("db.ts")) as { pool: pg.Pool };
    await pool.query("create table orders (id text primary key, total int); create table invoices (order_id text)");
    const invoices = async () => (await pool.query("select order_id from invoices order by 1")).rows;
    const isSent = async () => (await pool.query("select from postbox.outbox_pending")).rowCount === 0;
    const { placeOrder } = await load("orders.ts");
    const { messaging } = (await load("messaging.ts")) as { messaging: Messaging };
    try {
      const listeners = process.listenerCount("SIGTERM");
      await load("main.ts");
      expect(process.listenerCount("SIGTERM")).toBe(listeners + 1);
      await placeOrder({ id: "order-1", total: 7 });
      await expect(placeOrder({ id: "order-1", total: 7 })).rejects.toThrow();
      await until(async () => (await invoices()).length === 1 && (await isSent()));
      await messaging.close();

      const parts = await load("parts.ts");
      await placeOrder({ id: "order-2", total: 8 });
      await parts.start();
      await until(async () => parts.broker.depth("mail") === 1 && (await isSent()));
      await parts.stop();
      expect(await invoices()).toEqual([{ order_id: "order-1" }, { order_id: "order-2" }]);
    } finally {
      await messaging.close();
      await pool.end();
    }
  });

  it("the snippets about middleware compile, and do what they say", async () => {
    const files = snippets("docs/middleware.md");
    expect(Object.keys(files).sort()).toEqual(["publishing.ts", "tenant.ts"]);
    const middleware = join(folder, "middleware");
    mkdirSync(middleware);
    await compile(middleware, files);
    const { broker, publisher } = await import(join(middleware, "publishing.ts"));
    const { tenant } = await import(join(middleware, "tenant.ts"));
    const Ping = defineEvent({ type: "docs.Ping", schema: z.object({}) });
    const store = postgresStore({ pool: admin, schema: name });
    await store.migrate();
    const seen: string[] = [];
    const router = createRouter("docs")
      .use(transaction(store))
      .use(tenant as ReturnType<typeof defineMiddleware<"tenant", InTransaction<pg.ClientBase>, { tenant: string }>>)
      .on(Ping, async (_, context) => {
        const { rows } = await context.tx.query("select current_setting('app.tenant') as tenant");
        seen.push(context.tenant, rows[0].tenant);
      });
    router.start(broker.receiver({ events: [Ping], queue: "docs" }));
    await publisher.publish(Ping, {});
    await until(async () => broker.depth("docs") === 0);
    await router.stop();
    await admin.query(`drop schema ${name} cascade`);
    expect(seen).toEqual(["acme", "acme"]);
  });
});
