import { cuttable, describeOnEach, postgresTestData, recordingSender, testMessage } from "@postbox/testkit";
import pg from "pg";
import { createRelay } from "postbox";
import { afterAll, beforeEach, expect, it } from "vitest";
import { pgTransactions } from "../../transactions/pg.js";
import { postgresStore } from "./postgres-store.js";

/*
 * What becomes of a call that is given up: it takes no connection any longer, neither of the pool nor of the server.
 */

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 4 });
  const data = postgresTestData({ connect, transactions: pgTransactions });
  const { pool, schema } = data;
  const every = Array.from({ length: 64 }, (_, lane) => ({ lane, limit: 10 }));
  const application = `given up ${schema}`;

  beforeEach(async () => void (await data.create()));
  afterAll(data.drop);

  const atWork = async () => {
    const { rows } = await pool.query(
      "SELECT count(*)::int AS n FROM pg_stat_activity WHERE application_name = $1 AND state = 'active'",
      [application],
    );
    return rows[0].n as number;
  };

  it("ends on the server when it waits for a lock, and gives its connection back", async () => {
    const own = new pg.Pool({ connectionString: url, max: 3, application_name: application });
    const box = postgresStore({ pool: own, schema }).box("outbox");
    await box.read(every);
    const locking = await pool.connect();
    try {
      await locking.query("BEGIN");
      await locking.query(`LOCK TABLE ${schema}.outbox_pending IN ACCESS EXCLUSIVE MODE`);
      for (let round = 0; round < 4; round++) {
        const calls = Array.from({ length: 5 }, () => box.read(every, {}, AbortSignal.timeout(200)));
        for (const { status } of await Promise.allSettled(calls)) expect(status).toBe("rejected");
        expect(own.waitingCount).toBeLessThanOrEqual(5);
      }
      await expect.poll(atWork).toBe(0);
      // The pool is the application's, as before.
      expect((await own.query("SELECT 1 AS one")).rows).toEqual([{ one: 1 }]);
    } finally {
      await locking.query("ROLLBACK");
      locking.release();
    }
    expect((await box.read(every, {}, AbortSignal.timeout(30_000))).rows).toEqual([]);
    await own.end();
  });

  it("does not wait in the server for longer than some seconds, though nothing gives it up", async () => {
    const box = postgresStore({ pool, schema }).box("outbox");
    const locking = await pool.connect();
    try {
      await locking.query("BEGIN");
      await locking.query(`LOCK TABLE ${schema}.outbox_lane IN ACCESS EXCLUSIVE MODE`);
      await expect(box.renew("relay-1", 60_000, "key")).rejects.toMatchObject({ cause: { code: "55P03" } });
    } finally {
      await locking.query("ROLLBACK");
      locking.release();
    }
  });

  it("goes on when the network is back, though every connection of the pool is dead and does not know it", async () => {
    const way = await cuttable(url);
    const own = new pg.Pool({ connectionString: way.url, max: 2 });
    const store = postgresStore({ pool: own, schema });
    const box = store.box("outbox");
    await Promise.all([box.read(every), box.read(every)]);
    way.swallow();
    for (let round = 0; round < 3; round++) {
      const calls = Array.from({ length: 3 }, () => box.read(every, {}, AbortSignal.timeout(300)));
      for (const { status } of await Promise.allSettled(calls)) expect(status).toBe("rejected");
    }
    way.mend();
    expect((await box.read(every, {}, AbortSignal.timeout(30_000))).rows).toEqual([]);
    way.close();
  });

  it("lets a relay go on while users have every connection of its pool", async () => {
    const own = new pg.Pool({ connectionString: url, max: 2 });
    const store = postgresStore({ pool: own, schema });
    const sender = recordingSender();
    const relay = createRelay(store, sender, { leaseMs: 6_000, pollIntervalMs: 20, publishTimeoutMs: 900 });
    const users = [await own.connect(), await own.connect()];
    relay.start();
    const other = postgresStore({ pool, schema });
    await other.transaction((tx) => other.append(tx, "outbox", [testMessage("1"), testMessage("2")]));
    await sender.until(2);
    for (const client of users) client.release();
    await relay.stop();
    await own.end();
  });
});
