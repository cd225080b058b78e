import { gate, testMessage } from "@postbox/testkit";
import { describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import { librarySuite } from "@postbox/testkit/suites";
import { sql } from "drizzle-orm";
import { drizzle as drizzleOrm, type NodePgDatabase } from "drizzle-orm/node-postgres";
import { pgTable, text } from "drizzle-orm/pg-core";
import { drizzle as drizzleOnPostgresJs, type PostgresJsDatabase } from "drizzle-orm/postgres-js";
import pg from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, expectTypeOf, it } from "vitest";
import type { Store } from "../store.js";
import { postgresStore } from "../stores/postgres/index.js";
import { drizzle } from "./drizzle.js";

const orders = pgTable("orders", { id: text().primaryKey() });
type Database = NodePgDatabase<{ orders: typeof orders }>;
type Transaction = Parameters<Parameters<Database["transaction"]>[0]>[0];
type TransactionOnPostgresJs = Parameters<Parameters<PostgresJsDatabase["transaction"]>[0]>[0];

const rightCall = "db.transaction(async (tx) => …)";

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 12 });

  describe("on pg", () => {
    const pool = connect();
    // The test owns the pool, so it has to listen for errors of idle connections.
    pool.on("error", () => {});
    const db = drizzleOrm(pool, { schema: { orders } });
    afterAll(() => pool.end());
    librarySuite<Transaction>({
      name: "drizzle",
      rightCall,
      connect,
      transactions: () => drizzle(db),
      impostors: () => [db, pool],
      begin: (work) => db.transaction(work),
      nested: (tx, work) => tx.transaction(work),
      run: (tx, statement) => tx.execute(sql.raw(statement)),
      client: (tx) => (tx as unknown as { readonly session: { readonly client: pg.ClientBase } }).session.client,
    });
  });

  describe("on Postgres.js", () => {
    const client = postgres(url, { max: 12, onnotice: () => {} });
    const db = drizzleOnPostgresJs(client);
    afterAll(() => client.end({ timeout: 1 }));
    librarySuite<TransactionOnPostgresJs>({
      name: "drizzle",
      rightCall,
      connect,
      transactions: () => drizzle(db),
      impostors: () => [db, client],
      begin: (work) => db.transaction(work),
      nested: (tx, work) => tx.transaction(work),
      run: (tx, statement) => tx.execute(sql.raw(statement)),
    });
  });

  describe("a store with drizzle on pg", () => {
    const data = postgresTestData({ connect, transactions: (own) => drizzle(drizzleOrm(own)) });
    const { pool, schema } = data;
    const db = drizzleOrm(pool, { schema: { orders } });
    const store = postgresStore({ pool, schema, transactions: drizzle(db) });
    const message = testMessage("m1");
    beforeAll(async () => {
      await data.create();
    });
    afterAll(data.drop);

    it("knows how many transactions can be open at once", async () => {
      expect(store.maxTransactions).toBe(12);
      const client = postgres(url, { max: 3 });
      expect(drizzle(drizzleOnPostgresJs(client)).maxTransactions).toBe(3);
      await client.end();
    });

    it("has the type of the database's own transactions", async () => {
      expectTypeOf(store).toExtend<Store<Transaction>>();
      expectTypeOf(store.append).parameter(0).toEqualTypeOf<Transaction>();
      await store.transaction(async (tx) => {
        expectTypeOf(tx.query.orders.findFirst).toBeFunction();
      });
      // @ts-expect-error db is no transaction
      await expect(store.append(db, "outbox", [message])).rejects.toThrow("db runs each statement");
      // @ts-expect-error nor is the pool
      await expect(store.append(pool, "outbox", [message])).rejects.toThrow(rightCall);
    });

    it("survives a connection that breaks inside, and rejects with what its function threw", async () => {
      const [inside, broken] = [gate(), gate()];
      let pid = 0;
      const transaction = store.transaction(async (tx) => {
        pid = Number((await tx.execute(sql`SELECT pg_backend_pid() AS pid`)).rows[0]?.pid);
        inside.open();
        await broken.opened;
        throw new Error("no stock");
      });
      await inside.opened;
      await pool.query("SELECT pg_terminate_backend($1, 5000)", [pid]);
      await new Promise((resolve) => setTimeout(resolve, 50));
      broken.open();
      await expect(transaction).rejects.toThrow("no stock");
      await store.transaction((tx) => store.append(tx, "outbox", [message]));
      expect((await pool.query(`DELETE FROM ${schema}.outbox_pending RETURNING id`)).rows).toEqual([{ id: "m1" }]);
    });
  });
});
