import { recordingSender, telemetryLog } from "@postbox/testkit";
import { describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import pg from "pg";
import { createRelay } from "postbox";
import { afterAll, beforeEach, expect, it } from "vitest";
import { pgTransactions } from "../../transactions/pg.js";
import { postgresStore } from "./postgres-store.js";

const timing = { leaseMs: 3_000, pollIntervalMs: 50, publishTimeoutMs: 900 };

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 4 });
  const data = postgresTestData({ connect, transactions: pgTransactions });
  const { pool, schema } = data;

  beforeEach(async () => void (await data.create()));
  afterAll(data.drop);

  const renewers = async (): Promise<number[]> => {
    const name = `postbox renewals of ${schema}.outbox`;
    const { rows } = await pool.query("SELECT pid FROM pg_stat_activity WHERE application_name = $1", [name]);
    return rows.map(({ pid }) => pid);
  };

  /** The server notices a closed connection only after a moment. */
  async function allClosed(): Promise<void> {
    while ((await renewers()).length > 0);
  }

  /** Resolves when the only member has renewed this many times more. */
  async function renewed(times: number): Promise<void> {
    const beat = async () => Number((await pool.query(`SELECT max(beat) AS n FROM ${schema}.outbox_member`)).rows[0].n);
    for (const enough = (await beat()) + times; (await beat()) < enough; );
  }

  /** A relay with a small pool of its own that owns every lane. */
  async function relayOn(max: number) {
    const own = new pg.Pool({ connectionString: url, max });
    const log = telemetryLog();
    const relay = createRelay(postgresStore({ pool: own, schema }), recordingSender(), {
      ...timing,
      telemetry: log.telemetry,
    });
    relay.start();
    await log.until("relay.owned");
    return {
      log,
      pool: own,
      async stop() {
        await relay.stop();
        await own.end();
      },
    };
  }

  /** Takes every connection of a pool until the returned function is called. */
  async function exhaust(victim: pg.Pool): Promise<() => void> {
    const clients = await Promise.all(Array.from({ length: victim.options.max }, () => victim.connect()));
    return () => {
      for (const client of clients) client.release();
    };
  }

  it("keeps a relay's lanes while users have all connections of the pool", async () => {
    const relay = await relayOn(2);
    const letGo = await exhaust(relay.pool);
    // From now on, only the connection outside of the pool can renew. The lease expires before the second renewal.
    await renewed(2);
    await pool.query(`UPDATE ${schema}.outbox_member SET expires_at = expires_at - interval '1500 ms'`);
    await renewed(1);
    const another = postgresStore({ pool, schema }).box("outbox");
    expect(await another.own("another", 64)).toEqual([]);
    expect(relay.log.of("relay.lost")).toEqual([]);
    letGo();
    await relay.stop();
    await allClosed();
  });

  it("leaves at once, though the pool is exhausted", async () => {
    const relay = await relayOn(2);
    await renewed(1);
    const letGo = await exhaust(relay.pool);
    const stopping = relay.stop();
    await relay.log.until("relay.released");
    await allClosed();
    letGo();
    await stopping;
  });

  it("replaces a connection that was cut, and keeps the lanes", async () => {
    const relay = await relayOn(2);
    await renewed(1);
    const letGo = await exhaust(relay.pool);
    const [pid] = await renewers();
    await pool.query("SELECT pg_terminate_backend($1)", [pid]);
    await renewed(2);
    expect(await renewers()).not.toContain(pid);
    expect(relay.log.of("relay.lost")).toEqual([]);
    expect(relay.log.of("relay.failed")).toEqual([]);
    letGo();
    await relay.stop();
    await allClosed();
  });

  it("is closed also when leaving fails", async () => {
    const relay = await relayOn(2);
    await renewed(1);
    expect(await renewers()).toHaveLength(1);
    await pool.query(`ALTER TABLE ${schema}.outbox_lane RENAME TO away`);
    await relay.stop();
    expect(relay.log.of("relay.failed").at(-1)?.error.code).toBe("schema-missing");
    await allClosed();
    await pool.query(`ALTER TABLE ${schema}.away RENAME TO outbox_lane`);
  });
});
