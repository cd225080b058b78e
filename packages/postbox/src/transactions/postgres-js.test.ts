import { testMessage } from "@postbox/testkit";
import { describeOnEach } from "@postbox/testkit/servers";
import { librarySuite } from "@postbox/testkit/suites";
import pg from "pg";
import postgres, { type TransactionSql } from "postgres";
import { afterAll, describe, expect, expectTypeOf, it } from "vitest";
import type { Store } from "../store.js";
import { postgresStore } from "../stores/postgres/index.js";
import { postgresJs } from "./postgres-js.js";

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 12 });
  const sql = postgres(url, { max: 12, onnotice: () => {} });
  const pool = connect();
  afterAll(async () => {
    await Promise.all([sql.end({ timeout: 1 }), pool.end()]);
  });

  librarySuite<TransactionSql>({
    name: "Postgres.js",
    rightCall: "sql.begin(async (sql) => …)",
    connect,
    transactions: () => postgresJs(sql),
    impostors: () => [sql, pool],
    begin: (work) => sql.begin(work) as ReturnType<typeof work>,
    nested: (tx, work) => tx.savepoint(work) as ReturnType<typeof work>,
    run: (tx, statement) => tx.unsafe(statement),
  });

  describe("a store with Postgres.js", () => {
    it("knows how many transactions can be open at once", () => {
      expect(postgresStore({ pool, transactions: postgresJs(sql) }).maxTransactions).toBe(12);
    });

    it("has the type of its transactions", async () => {
      const store = postgresStore({ pool, transactions: postgresJs(sql) });
      expectTypeOf(store).toExtend<Store<TransactionSql>>();
      // @ts-expect-error sql itself is no transaction
      await expect(store.append(sql, "outbox", [testMessage("m1")])).rejects.toThrow("sql itself runs each statement");
      // @ts-expect-error nor is the pool
      await expect(store.append(pool, "outbox", [testMessage("m1")])).rejects.toThrow("sql.begin(");
    });
  });
});
