import { testMessage } from "@postbox/testkit";
import { describeOnEach } from "@postbox/testkit/servers";
import { librarySuite } from "@postbox/testkit/suites";
import { Kysely, PostgresDialect, sql, type Transaction } from "kysely";
import pg from "pg";
import { afterAll, describe, expect, expectTypeOf, it } from "vitest";
import type { Store } from "../store.js";
import { postgresStore } from "../stores/postgres/index.js";
import { kysely } from "./kysely.js";

interface Schema {
  orders: { id: string };
}

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 12 });
  const pool = connect();
  const db = new Kysely<Schema>({ dialect: new PostgresDialect({ pool }) });
  afterAll(() => db.destroy());

  librarySuite<Transaction<Schema>>({
    name: "kysely",
    rightCall: "db.transaction().execute(async (trx) => …)",
    connect,
    transactions: () => kysely(db),
    impostors: () => [db, pool],
    begin: (work) => db.transaction().execute(work),
    // Kysely has savepoints only in transactions that are started with `startTransaction`.
    nested: async (trx, work) => {
      await sql`SAVEPOINT nested`.execute(trx);
      try {
        const result = await work(trx);
        await sql`RELEASE SAVEPOINT nested`.execute(trx);
        return result;
      } catch (error) {
        await sql`ROLLBACK TO SAVEPOINT nested`.execute(trx);
        throw error;
      }
    },
    run: (trx, statement) => sql.raw(statement).execute(trx),
  });

  describe("a store with kysely", () => {
    const store = postgresStore({ pool, transactions: kysely(db) });

    it("has the type of the database's own transactions", async () => {
      expectTypeOf(store).toExtend<Store<Transaction<Schema>>>();
      // @ts-expect-error db is no transaction
      await expect(store.append(db, "outbox", [testMessage("m1")])).rejects.toThrow("db runs each statement");
      // @ts-expect-error nor is the pool
      await expect(store.append(pool, "outbox", [testMessage("m1")])).rejects.toThrow("db.transaction()");
    });

    it("takes a transaction that was begun by hand, until it has ended", async () => {
      const trx = await db.startTransaction().execute();
      const { rows } = await kysely(db).executor(trx)("SELECT $1::text AS answer", ["open"]);
      expect(rows).toEqual([{ answer: "open" }]);
      await trx.rollback().execute();
      await expect(kysely(db).executor(trx)("SELECT 1", [])).rejects.toThrow("has ended");
    });
  });
});
