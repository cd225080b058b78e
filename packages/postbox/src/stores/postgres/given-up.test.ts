import { recordingSender, testMessage } from "@postbox/testkit";
import { cuttable, describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import pg from "pg";
import { createRelay } from "postbox";
import { afterAll, afterEach, beforeEach, expect, it } from "vitest";
import { pgTransactions } from "../../transactions/pg.js";
import { postgresStore } from "./postgres-store.js";

/* An abandoned call holds no connection, neither of the pool nor of the server. */

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 4 });
  const data = postgresTestData({ connect, transactions: pgTransactions });
  const { pool, schema } = data;
  const every = Array.from({ length: 64 }, (_, lane) => ({ lane, limit: 10 }));
  const application = `given up ${schema}`;

  beforeEach(async () => void (await data.create()));
  afterEach(() => pool.query(`DROP FUNCTION IF EXISTS ${schema}.sleep CASCADE`));
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
      // The application's pool works as before.
      expect((await own.query("SELECT 1 AS one")).rows).toEqual([{ one: 1 }]);
    } finally {
      await locking.query("ROLLBACK");
      locking.release();
    }
    expect((await box.read(every, {}, AbortSignal.timeout(30_000))).rows).toEqual([]);
    await own.end();
  });

  /** How many statements of this schema sleep on the server, where only a cancel request ends them. */
  const asleep = async () => {
    const { rows } = await pool.query(
      "SELECT count(*)::int AS n FROM pg_stat_activity WHERE query LIKE $1 AND wait_event = 'PgSleep'",
      [`%${schema}%`],
    );
    return rows[0].n as number;
  };
  const sleepsOn = (table: string) => `
    CREATE FUNCTION ${schema}.sleep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); RETURN NEW; END $$;
    CREATE TRIGGER sleep BEFORE UPDATE ON ${schema}.${table} FOR EACH ROW EXECUTE FUNCTION ${schema}.sleep()`;

  it("ends on the server, too, when it runs beside the pool", async () => {
    const own = new pg.Pool({ connectionString: url, max: 1 });
    const box = postgresStore({ pool: own, schema }).box("outbox");
    await box.renew("relay-1", 60_000, "key");
    await pool.query(sleepsOn("outbox_lane"));
    const user = await own.connect();
    const giveUp = new AbortController();
    const owning = box.own("relay-1", 64, {}, giveUp.signal);
    await expect.poll(asleep).toBe(1);
    giveUp.abort(new Error("enough"));
    await expect(owning).rejects.toThrow("enough");
    await expect.poll(asleep).toBe(0);
    user.release();
    await own.end();
  });

  it("ends on the server, too, when it is a renewal", async () => {
    const own = new pg.Pool({ connectionString: url, max: 2 });
    const box = postgresStore({ pool: own, schema }).box("outbox");
    await box.renew("relay-1", 3_000, "key");
    await pool.query(sleepsOn("outbox_member"));
    const giveUp = new AbortController();
    const renewing = box.renew("relay-1", 3_000, "key", giveUp.signal);
    const ended = expect(renewing).rejects.toThrow("enough");
    await expect.poll(asleep).toBe(1);
    // A fresh connection runs the second one; the third is the pool's.
    await expect.poll(() => own.totalCount - own.idleCount).toBe(1);
    giveUp.abort(new Error("enough"));
    await ended;
    await expect.poll(asleep).toBe(0);
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

  it("continues when the network is back, although every connection of the pool is dead", async () => {
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

  it("gives its connection back when a message is set aside over one that swallows everything", async () => {
    const way = await cuttable(url);
    const own = new pg.Pool({ connectionString: way.url, max: 1 });
    own.on("error", () => {});
    const store = postgresStore({ pool: own, schema });
    const remembering = { retentionMs: 60_000, lockTimeoutMs: 1_000 };
    const setAside = (id: string, signal: AbortSignal) =>
      store.inbox.setAside(
        { consumer: "billing", id, message: testMessage(id) },
        { to: "wait", attempts: 1, retryInMs: 60_000, error: "no stock" },
        remembering,
        signal,
      );
    expect(await setAside("1", AbortSignal.timeout(30_000))).toBe("new");
    way.swallow();
    // At BEGIN, where nothing else observes the signal.
    await expect(setAside("2", AbortSignal.timeout(300))).rejects.toThrow();
    way.mend();
    expect(await setAside("3", AbortSignal.timeout(30_000))).toBe("new");
    await own.end();
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

// A pooler can identify the statement only while its client is connected.
describeOnEach("pgbouncer", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 4 });
  const data = postgresTestData({ connect, transactions: pgTransactions });
  const { pool, schema } = data;
  afterAll(data.drop);

  it("ends on the server behind a pooler, too, and nothing else does", async () => {
    await data.create();
    const own = new pg.Pool({ connectionString: url, max: 6 });
    const box = postgresStore({ pool: own, schema }).box("outbox");
    await box.renew("relay-1", 60_000, "key");
    await pool.query(`
      CREATE FUNCTION ${schema}.sleep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); RETURN NEW; END $$;
      CREATE TRIGGER sleep BEFORE UPDATE ON ${schema}.outbox_lane FOR EACH ROW EXECUTE FUNCTION ${schema}.sleep()`);
    const asleep = async () => {
      const { rows } = await pool.query(
        "SELECT count(*)::int AS n FROM pg_stat_activity WHERE query LIKE $1 AND wait_event = 'PgSleep'",
        [`%${schema}%`],
      );
      return rows[0].n as number;
    };
    for (let round = 0; round < 5; round++) {
      const giveUp = new AbortController();
      const owning = box.own("relay-1", 64, {}, giveUp.signal);
      const ended = expect(owning).rejects.toThrow("enough");
      const other = own.query("SELECT pg_sleep(0.3), 1 AS one");
      await expect.poll(asleep).toBe(1);
      giveUp.abort(new Error("enough"));
      await ended;
      await expect.poll(asleep).toBe(0);
      expect((await other).rows).toMatchObject([{ one: 1 }]);
    }
    await own.end();
    await pool.query(`DROP FUNCTION ${schema}.sleep CASCADE`);
  });
});
