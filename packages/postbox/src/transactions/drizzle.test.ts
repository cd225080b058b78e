import { describeOnEach, gate, postgresTestData, testMessage } from "@postbox/testkit";
import { sql } from "drizzle-orm";
import { drizzle as drizzleOrm, type NodePgDatabase } from "drizzle-orm/node-postgres";
import { pgTable, text } from "drizzle-orm/pg-core";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, expectTypeOf, it } from "vitest";
import type { Store } from "../store.js";
import { postgresStore } from "../stores/postgres/index.js";
import { drizzle } from "./drizzle.js";

const orders = pgTable("orders", { id: text().primaryKey() });
type Transaction = Parameters<Parameters<NodePgDatabase<{ orders: typeof orders }>["transaction"]>[0]>[0];

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 4 });
  const data = postgresTestData({ connect, transactions: (own) => drizzle(drizzleOrm(own)) });
  const { pool, schema } = data;
  const db = drizzleOrm(pool, { schema: { orders } });
  const store = postgresStore({ pool, schema, transactions: drizzle(db) });
  const message = testMessage("m1");

  beforeAll(async () => {
    await data.create();
  });
  afterAll(data.drop);

  const takePending = async () =>
    (await pool.query(`DELETE FROM ${schema}.outbox_pending RETURNING id`)).rows.map(({ id }) => id);

  it("gives the store the type of the database's own transactions", async () => {
    expectTypeOf(store).toExtend<Store<Transaction>>();
    expectTypeOf(store.append).parameter(0).toEqualTypeOf<Transaction>();
    await store.transaction(async (tx) => {
      expectTypeOf(tx.query.orders.findFirst).toBeFunction();
    });
  });

  describe("executor", () => {
    it("works in the user's own transaction, and in one nested in it", async () => {
      await db.transaction(async (tx) => {
        await store.append(tx, "outbox", [message]);
        await tx.transaction((inner) => store.append(inner, "outbox", [testMessage("m2"), testMessage("m3")]));
        await tx
          .transaction(async (inner) => {
            await store.append(inner, "outbox", [testMessage("m4")]);
            inner.rollback();
          })
          .catch(() => {});
      });
      expect((await takePending()).sort()).toEqual(["m1", "m2", "m3"]);
    });

    it("refuses db itself, and shows the right call", async () => {
      const refused = store.append(db as unknown as Transaction, "outbox", [message]);
      await expect(refused).rejects.toThrow(/^\[not-a-transaction\] .* db runs each statement.*db\.transaction\(/);
    });

    it("refuses a transaction that has ended", async () => {
      let kept: Transaction | undefined;
      await db.transaction(async (tx) => {
        kept = tx;
      });
      const refused = store.append(kept as Transaction, "outbox", [message]);
      await expect(refused).rejects.toMatchObject({ code: "not-a-transaction" });
      expect(await takePending()).toEqual([]);
    });
  });

  describe("begin", () => {
    it("rejects when COMMIT rolls back because an error was swallowed", async () => {
      const swallowed = store.transaction(async (tx) => {
        await store.append(tx, "outbox", [message]);
        await tx.execute(sql`SELECT 1 / 0`).catch(() => {});
        return "looks fine";
      });
      await expect(swallowed).rejects.toMatchObject({ code: "commit-rolled-back" });
      expect(await takePending()).toEqual([]);
    });

    it.each(["read committed", "repeatable read", "serializable"] as const)("begins at %s", async (isolation) => {
      const level = await store.transaction((tx) => tx.execute(sql`SHOW transaction_isolation`), { isolation });
      expect(level.rows[0]?.transaction_isolation).toBe(isolation);
    });

    it("outlives a connection that breaks inside, and tells what its function threw", async () => {
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
      expect(await takePending()).toEqual(["m1"]);
    });
  });
});
