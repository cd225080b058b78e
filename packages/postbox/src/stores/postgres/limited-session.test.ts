import { telemetryLog, testMessage } from "@postbox/testkit";
import { describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import { remember } from "@postbox/testkit/suites";
import pg from "pg";
import { afterAll, beforeAll, expect, it } from "vitest";
import { z } from "zod";
import {
  constant,
  createPublisher,
  createRouter,
  defineEvent,
  durableInbox,
  inbox,
  transaction,
} from "../../exports/index.js";
import { memoryBroker } from "../../exports/memory.js";
import { pgTransactions, postgresStore } from "./index.js";

const Placed = defineEvent({ type: "limited.Placed", schema: z.object({ n: z.number() }) });

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 4 });
  const data = postgresTestData({ connect, transactions: pgTransactions });
  beforeAll(data.create);
  afterAll(data.drop);

  const limits = {
    statement_timeout: { code: "store-failed" },
    query_timeout: { code: "store-failed" },
    lock_timeout: { code: "inbox-busy" },
  };

  it.each(Object.entries(limits))(
    "spends no attempt where %s ends the inbox's own statement",
    async (limit, { code }) => {
      const pool = new pg.Pool({ connectionString: url, max: 3, [limit]: 200 });
      const store = postgresStore({ pool, schema: data.schema });
      const consumer = `limited by ${limit}`;
      const broker = memoryBroker();
      broker.bind(consumer, [Placed]);
      const log = telemetryLog();
      const attempts: number[] = [];
      const router = createRouter(consumer, { telemetry: log.telemetry, maxAttempts: 1, backoff: constant(10) })
        .use(transaction(store))
        .use(inbox(store, { lockTimeoutMs: 300 }))
        .on(Placed, async (_, { attempt }) => void attempts.push(attempt));
      const others = postgresStore({ pool: data.pool, schema: data.schema });
      let end = () => {};
      const ended = new Promise<void>((resolve) => (end = resolve));
      const remembered = new Promise<void>((resolve, reject) => {
        // Another transaction has the same message and eventually rolls back.
        others
          .transaction(async (tx) => {
            await remember(others, tx, consumer, testMessage("m1"));
            resolve();
            await ended;
            throw new Error("not this one");
          })
          .catch(reject);
      });
      await remembered;
      await createPublisher(broker.sender(), { source: "/orders" }).publish(Placed, { n: 1 }, { id: "m1" });
      await router.start(broker.receiver());
      const failed = await log.until(code === "inbox-busy" ? "delivery.retried" : "router.failed");
      end();
      await log.until("delivery.handled");
      await router.stop();
      await pool.end();
      expect(attempts).toEqual([1]);
      expect(log.of("delivery.parked")).toEqual([]);
      expect(failed.error).toMatchObject({ code });
    },
  );

  it("spends no attempt where the server cannot take a handled message out of the box", async () => {
    const { pool, schema } = data;
    const store = postgresStore({ pool, schema });
    // A sequence keeps counting through rollbacks.
    await pool.query(`
      CREATE SEQUENCE ${schema}.tries;
      CREATE FUNCTION ${schema}.full() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        IF nextval('${schema}.tries') <= 2 THEN
          RAISE EXCEPTION 'no space left on device' USING ERRCODE = '53100';
        END IF;
        RETURN OLD;
      END $$;
      CREATE TRIGGER is_full BEFORE DELETE ON ${schema}.inbox_pending FOR EACH ROW EXECUTE FUNCTION ${schema}.full()`);
    const broker = memoryBroker();
    broker.bind("full", [Placed]);
    const log = telemetryLog();
    const router = createRouter("full", { telemetry: log.telemetry, maxAttempts: 1, backoff: constant(10) })
      .use(transaction(store))
      .use(durableInbox(store))
      .on(Placed, async () => {});
    await createPublisher(broker.sender(), { source: "/orders" }).publish(Placed, { n: 1 });
    await router.start(broker.receiver());
    await log.until("delivery.acked");
    await router.stop();
    await pool.query(`DROP TRIGGER is_full ON ${schema}.inbox_pending`);
    expect(log.of("delivery.parked")).toEqual([]);
    expect(log.of("router.failed").map(({ error }) => error.code)).toEqual(["store-failed", "store-failed"]);
  });

  it("spends no attempt where a partition is missing, which the server reports like a violated check", async () => {
    const { pool, schema } = data;
    const store = postgresStore({ pool, schema });
    await pool.query(`
      CREATE SEQUENCE ${schema}.inserts;
      CREATE FUNCTION ${schema}.unpartitioned() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        IF nextval('${schema}.inserts') <= 2 THEN
          RAISE EXCEPTION 'no partition of relation "inbox_message" found for row' USING ERRCODE = '23514';
        END IF;
        RETURN NEW;
      END $$;
      CREATE TRIGGER unpartitioned BEFORE INSERT ON ${schema}.inbox_message
        FOR EACH ROW EXECUTE FUNCTION ${schema}.unpartitioned()`);
    const broker = memoryBroker();
    broker.bind("partitioned", [Placed]);
    const log = telemetryLog();
    const router = createRouter("partitioned", { telemetry: log.telemetry, maxAttempts: 1, backoff: constant(10) })
      .use(transaction(store))
      .use(inbox(store))
      .on(Placed, async () => {});
    await createPublisher(broker.sender(), { source: "/orders" }).publish(Placed, { n: 1 });
    await router.start(broker.receiver());
    await log.until("delivery.acked");
    await router.stop();
    await pool.query(`DROP TRIGGER unpartitioned ON ${schema}.inbox_message`);
    expect(log.of("delivery.parked")).toEqual([]);
    expect(log.of("router.failed").map(({ error }) => error.code)).toEqual(["store-failed", "store-failed"]);
  });
});
