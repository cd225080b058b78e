import { testMessage } from "@postbox/testkit";
import { describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import { remember } from "@postbox/testkit/suites";
import pg from "pg";
import { afterAll, beforeAll, expect, it } from "vitest";
import type { TransactionLibrary } from "../../store.js";
import { pgTransactions, postgresStore } from "./index.js";

/** A library whose driver does not report how many rows a statement wrote. */
function countingNothing(pool: pg.Pool): TransactionLibrary<pg.ClientBase, "postgres"> {
  const library = pgTransactions(pool);
  return {
    ...library,
    executor(tx) {
      const execute = library.executor(tx);
      return async (statement, params) => ({ rows: (await execute(statement, params)).rows, rowCount: 0 });
    },
  };
}

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 2 });
  const data = postgresTestData({ connect, transactions: pgTransactions });
  beforeAll(data.create);
  afterAll(data.drop);

  it("remembers a message by the rows that come back, whatever the library counts", async () => {
    const { pool, schema } = data;
    const store = postgresStore({ pool, schema, transactions: countingNothing(pool) });
    const handle = () => store.transaction((tx) => remember(store, tx, "billing", testMessage("m1")));
    expect([await handle(), await handle()]).toEqual(["new", "duplicate"]);
  });

  it("leaves the session's own lock_timeout as it was", async () => {
    const store = postgresStore({ pool: data.pool, schema: data.schema });
    const during = await store.transaction(async (tx) => {
      await tx.query("SET LOCAL lock_timeout = '1234ms'");
      await remember(store, tx, "billing", testMessage("m2"));
      return (await tx.query("SHOW lock_timeout")).rows[0].lock_timeout;
    });
    expect(during).toBe("1234ms");
  });
});
