import { randomBytes } from "node:crypto";
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { describeOnEach } from "@postbox/testkit/servers";
import pg from "pg";
import { createRouter, defineEvent, type Relay, type RunsReceiver, transaction } from "postbox";
import type { defineMiddleware, InTransaction } from "postbox/middleware";
import { postgresStore } from "postbox/postgres";
import { afterAll, beforeAll, expect, it } from "vitest";
import { z } from "zod";
import { compile, root, snippets, until } from "./snippets.js";

/** What the reader has already: a database with two tables. */
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
      "broker.ts",
      "db.ts",
      "events.ts",
      "orders.ts",
      "relay.ts",
    ]);
    await compile(folder, files);

    const url = new URL(server.url);
    url.pathname = name;
    process.env.README_DATABASE_URL = url.href;
    const { pool } = (await import(join(folder, "db.ts"))) as { pool: pg.Pool };
    await pool.query("create table orders (id text primary key, total int); create table invoices (order_id text)");
    const { placeOrder } = await import(join(folder, "orders.ts"));
    const { router } = (await import(join(folder, "billing.ts"))) as { router: RunsReceiver };
    const { relay } = (await import(join(folder, "relay.ts"))) as { relay: Relay };
    const { broker } = await import(join(folder, "broker.ts"));
    try {
      await placeOrder({ id: "order-1", total: 7 });
      await expect(placeOrder({ id: "order-1", total: 7 })).rejects.toThrow();
      await until(async () => broker.depth("mail") === 1);
      expect((await pool.query("select order_id from invoices")).rows).toEqual([{ order_id: "order-1" }]);
      await until(async () => (await pool.query("select from postbox.outbox_pending")).rowCount === 0);
    } finally {
      await Promise.all([relay.stop(), router.stop()]);
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
