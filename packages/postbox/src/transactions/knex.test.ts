import { testMessage } from "@postbox/testkit";
import { describeOnEach } from "@postbox/testkit/servers";
import { librarySuite } from "@postbox/testkit/suites";
import createKnex, { type Knex } from "knex";
import pg from "pg";
import { afterAll, describe, expect, expectTypeOf, it } from "vitest";
import type { Store } from "../store.js";
import { postgresStore } from "../stores/postgres/index.js";
import { knex } from "./knex.js";

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 12 });
  const db = createKnex({
    client: "pg",
    connection: url,
    pool: { min: 0, max: 12 },
    // Knex logs every connection that breaks.
    log: { warn: () => {}, error: () => {} },
  });
  const pool = connect();
  afterAll(async () => {
    await Promise.all([db.destroy(), pool.end()]);
  });

  librarySuite<Knex.Transaction>({
    name: "knex",
    rightCall: "knex.transaction(async (trx) => …)",
    connect,
    transactions: () => knex(db),
    impostors: () => [db, pool],
    begin: (work) => db.transaction(work),
    nested: (trx, work) => trx.transaction(work),
    run: async (trx, statement) => trx.raw(statement),
  });

  describe("a store with knex", () => {
    it("knows how many transactions can be open at once", () => {
      expect(postgresStore({ pool, transactions: knex(db) }).maxTransactions).toBe(12);
    });

    it("has the type of its transactions", async () => {
      const store = postgresStore({ pool, transactions: knex(db) });
      expectTypeOf(store).toExtend<Store<Knex.Transaction>>();
      // @ts-expect-error knex itself is no transaction
      await expect(store.append(db, "outbox", [testMessage("m1")])).rejects.toThrow("knex itself runs each statement");
      // @ts-expect-error nor is the pool
      await expect(store.append(pool, "outbox", [testMessage("m1")])).rejects.toThrow("knex.transaction(");
    });
  });
});
