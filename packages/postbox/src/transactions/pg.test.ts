import { gate, testMessage } from "@postbox/testkit";
import { describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import { librarySuite } from "@postbox/testkit/suites";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, expectTypeOf, it } from "vitest";
import type { Store } from "../store.js";
import { type PostgresStore, postgresStore } from "../stores/postgres/index.js";
import { pgTransactions } from "./pg.js";

/** A transaction as most users of `pg` write it. */
async function inTransaction<R>(pool: pg.Pool, work: (client: pg.ClientBase) => Promise<R>): Promise<R> {
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    const result = await work(client);
    await client.query("COMMIT");
    return result;
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  } finally {
    client.release();
  }
}

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 4 });
  const data = postgresTestData({ connect, transactions: pgTransactions });
  const { pool, schema } = data;
  const message = testMessage("m1");
  let store: PostgresStore<pg.ClientBase>;

  beforeAll(async () => {
    await data.create();
    store = postgresStore({ pool, schema });
  });
  afterAll(data.drop);

  librarySuite<pg.ClientBase>({
    name: "pg",
    rightCall: 'await client.query("BEGIN")',
    connect: () => new pg.Pool({ connectionString: url, max: 12 }),
    transactions: pgTransactions,
    impostors: () => [pool],
    begin: (work) => inTransaction(pool, work),
    nested: async (client, work) => {
      await client.query("SAVEPOINT nested");
      try {
        return await work(client);
      } catch (error) {
        await client.query("ROLLBACK TO SAVEPOINT nested");
        throw error;
      }
    },
    run: (client, statement) => client.query(statement),
    client: (client) => client,
  });

  it("gives the store its type", async () => {
    expectTypeOf(store).toExtend<Store<pg.ClientBase>>();
    expectTypeOf(postgresStore<pg.ClientBase>).returns.toEqualTypeOf<PostgresStore<pg.ClientBase>>();
    // @ts-expect-error a pool is no client
    await expect(store.append(pool, "outbox", [message])).rejects.toThrow("a pool runs each statement");
  });

  describe("executor", () => {
    it("refuses a pool, and shows the right call", async () => {
      const refused = store.append(pool as unknown as pg.ClientBase, "outbox", [message]);
      await expect(refused).rejects.toThrow(
        /^\[not-a-transaction\] .* a pool runs each statement on any connection.*await client\.query\("BEGIN"\)/,
      );
    });

    it("refuses a client before BEGIN, after COMMIT, and after its end", async () => {
      const client = new pg.Client(url) as unknown as pg.ClientBase;
      const refused = () => expect(store.append(client, "outbox", [message])).rejects;
      await client.connect();
      await refused().toThrow("no transaction is open on this client");
      await client.query("BEGIN");
      await store.append(client, "outbox", [message]);
      await client.query("ROLLBACK");
      await refused().toMatchObject({ code: "not-a-transaction" });
      await client.query("BEGIN");
      await (client as unknown as pg.Client).end();
      await refused().toThrow("its connection is closed");
    });

    it.each([
      ["ROLLBACK", "it is being ended"],
      ["/* app */ -- done\n COMMIT", "it is being ended"],
      ["SELECT 1; rollback work", "it is being ended"],
      ["ROLLBACK TO SAVEPOINT s", undefined],
      ["rollback work to s", undefined],
    ])("knows what %j on its way does, also in a pipeline", async (ending, refusal) => {
      for (const pipeline of [false, true]) {
        const own = new pg.Pool({ connectionString: url, max: 1, pipeline } as pg.PoolConfig);
        const client = await own.connect();
        try {
          for (const text of ["BEGIN", "SAVEPOINT s"]) await client.query(text);
          const [slow, end] = [client.query("SELECT pg_sleep(0.02)"), client.query(ending)];
          const outcome = await store.append(client, "outbox", [message]).then(
            () => undefined,
            (error: Error) => error.message,
          );
          if (refusal === undefined) expect(outcome).toBeUndefined();
          else expect(outcome).toContain(refusal);
          await Promise.all([slow, end]);
          await client.query("ROLLBACK");
        } finally {
          client.release();
          await own.end();
        }
      }
      expect((await pool.query(`SELECT FROM ${schema}.outbox_pending`)).rowCount).toBe(0);
    });

    it("refuses an aborted transaction with its own words", async () => {
      const broken = store.transaction(async (tx) => {
        await tx.query("SELECT 1 / 0").catch(() => {});
        await tx.query("SELECT 1").catch(() => {});
        await store.append(tx, "outbox", [message]);
      });
      await expect(broken).rejects.toThrow("a statement in this transaction has failed");
    });

    it("works behind a savepoint that was rolled back to", async () => {
      const rows = await store.transaction(async (tx) => {
        await tx.query("SAVEPOINT s");
        await tx.query("SELECT 1 / 0").catch(() => {});
        await tx.query("ROLLBACK TO s");
        await store.append(tx, "outbox", [message]);
        return (await tx.query(`DELETE FROM ${schema}.outbox_pending RETURNING id`)).rows;
      });
      expect(rows).toEqual([{ id: "m1" }]);
    });
  });

  describe("begin", () => {
    it("rejects when COMMIT rolls back because an error was swallowed", async () => {
      const swallowed = store.transaction(async (tx) => {
        await store.append(tx, "outbox", [message]);
        await tx.query("SELECT 1 / 0").catch(() => {});
        return "looks fine";
      });
      await expect(swallowed).rejects.toThrow(/^\[commit-rolled-back\] .* its error was swallowed/);
      expect((await pool.query(`SELECT FROM ${schema}.outbox_pending`)).rowCount).toBe(0);
    });

    it("rejects when its function ended the transaction", async () => {
      const ended = store.transaction((tx) => tx.query("COMMIT"));
      await expect(ended).rejects.toMatchObject({ code: "transaction-ended" });
    });

    it.each(["read committed", "repeatable read", "serializable"] as const)("begins at %s", async (isolation) => {
      const level = await store.transaction((tx) => tx.query("SHOW transaction_isolation"), { isolation });
      expect(level.rows[0].transaction_isolation).toBe(isolation);
    });

    it("refuses an unknown level", async () => {
      const wrong = store.transaction(async () => {}, { isolation: "snapshot; DROP TABLE x" as "serializable" });
      await expect(wrong).rejects.toMatchObject({ code: "option-invalid" });
    });

    it("refuses a transaction inside another one", async () => {
      const nested = store.transaction(() => store.transaction(async () => {}));
      await expect(nested).rejects.toThrow("[transaction-nested]");
    });

    it("outlives a connection that breaks inside, and does not use it again", async () => {
      const [inside, broken] = [gate(), gate()];
      let pid = 0;
      const transaction = store.transaction(async (tx) => {
        pid = (await tx.query("SELECT pg_backend_pid() AS pid")).rows[0].pid;
        tx.once("end", broken.open);
        inside.open();
        await broken.opened;
        await store.append(tx, "outbox", [message]);
      });
      // Attach the expectation before it can reject: the test run counts an unhandled rejection as an error.
      const rejected = expect(transaction).rejects.toThrow("its connection is closed");
      await inside.opened;
      await pool.query("SELECT pg_terminate_backend($1)", [pid]);
      await rejected;
      const pids = await Promise.all([1, 2, 3, 4].map(() => pool.query("SELECT pg_backend_pid() AS pid")));
      expect(pids.map(({ rows }) => rows[0].pid)).not.toContain(pid);
    });
  });
});
