import { setTimeout } from "node:timers/promises";
import { gate, manualRuntime, recordingSender, telemetryLog, testMessage } from "@postbox/testkit";
import { describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import { notifierSuite } from "@postbox/testkit/suites";
import pg from "pg";
import { createOutbox, createRelay, defineEvent, type Notifier } from "postbox";
import { afterAll, beforeAll, expect, it } from "vitest";
import { z } from "zod";
import { pgTransactions } from "../../transactions/pg.js";
import { postgresNotifier } from "./postgres-notifier.js";
import { type PostgresStore, postgresStore } from "./postgres-store.js";

const Placed = defineEvent({ type: "shop.Placed", schema: z.object({ n: z.number() }) });

it("needs a connection to listen on, and says so", () => {
  const likePool = { connect() {}, query() {}, on() {}, listenerCount: () => 1 } as unknown as pg.Pool;
  const likePglite = new pg.Pool({ connection: {} } as pg.PoolConfig);
  for (const pool of [likePool, likePglite]) {
    expect(() => postgresNotifier({ pool })).toThrow("this pool cannot open a separate connection to listen on");
  }
});

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 4 });
  const data = postgresTestData({ connect, transactions: pgTransactions });
  const { pool, schema } = data;
  const channel = `postbox:${schema}:outbox`;
  let store: PostgresStore<pg.ClientBase>;
  let notifier: Notifier;

  beforeAll(async () => {
    await data.create();
    store = postgresStore({ pool, schema });
    notifier = postgresNotifier({ pool, schema });
  });
  afterAll(data.drop);

  notifierSuite({
    name: "postgres",
    create: async () => ({
      notifier: postgresNotifier({ pool, schema }),
      another: postgresNotifier({ pool, schema }),
      async close() {},
    }),
  });

  const listeners = async (): Promise<number[]> => {
    const name = `postbox listener of ${channel}`;
    const { rows } = await pool.query("SELECT pid FROM pg_stat_activity WHERE application_name = $1", [name]);
    return rows.map(({ pid }) => pid);
  };

  /** The server notices a closed connection only after a moment. */
  async function allClosed(): Promise<void> {
    while ((await listeners()).length > 0);
  }

  /** A client that records the payloads that it receives on the outbox's channel. */
  async function listeningClient() {
    const client = new pg.Client(url);
    await client.connect();
    const heard: string[] = [];
    let arrived = gate();
    client.on("notification", ({ payload = "" }) => {
      heard.push(payload);
      arrived.open();
      arrived = gate();
    });
    await client.query(`LISTEN "${channel}"`);
    return {
      heard,
      async until(test: () => boolean) {
        while (!test()) await arrived.opened;
      },
      end: () => client.end(),
    };
  }

  it("wakes a relay whose time stands still", async () => {
    const [log, runtime, sender] = [telemetryLog(), manualRuntime(), recordingSender()];
    const relay = createRelay(store, sender, { notifier, runtime, telemetry: log.telemetry });
    relay.start();
    await log.until("relay.listening");
    while (log.of("relay.drained").length === 0) {
      await runtime.advance(1);
      await setTimeout(1);
    }
    expect(await listeners()).toHaveLength(1);
    const outbox = createOutbox(store, { source: "/o", notifier });
    await store.transaction((tx) => outbox.in(tx).publish(Placed, { n: 1 }));
    await log.until("message.sent");
    await relay.stop();
    await allClosed();
  });

  it("opens no connection unless asked to", async () => {
    const log = telemetryLog();
    const relay = createRelay(store, recordingSender(), { telemetry: log.telemetry });
    relay.start();
    await log.until("relay.drained");
    expect(await listeners()).toEqual([]);
    await relay.stop();
  });

  it("listens again when its connection was cut, and has missed nothing", async () => {
    const [log, sender] = [telemetryLog(), recordingSender()];
    const relay = createRelay(store, sender, { notifier, telemetry: log.telemetry });
    relay.start();
    await log.until("relay.listening");
    await pool.query("SELECT pg_terminate_backend(pid) FROM unnest($1::integer[]) AS pid", [await listeners()]);
    const failed = await log.until("relay.listen-failed");
    expect(failed.error.message).toContain("terminating connection");
    await store.transaction((tx) => store.append(tx, "outbox", [testMessage("meanwhile")]));
    await log.until("relay.listening", 2);
    await log.until("message.sent");
    expect(await listeners()).toHaveLength(1);
    await relay.stop();
    expect(sender.ids()).toEqual(["meanwhile"]);
    await allClosed();
  });

  it("notifies outside of the user's transaction: it is heard before the commit", async () => {
    const ear = await listeningClient();
    const outbox = createOutbox(store, { source: "/o", notifier });
    const client = await pool.connect();
    await client.query("BEGIN");
    await outbox.in(client).publish(Placed, { n: 1 });
    await ear.until(() => ear.heard.length > 0);
    await client.query("ROLLBACK");
    client.release();
    await ear.end();
  });

  it("lets no publish wait for a connection of an exhausted pool", async () => {
    const single = new pg.Pool({ connectionString: url, max: 1 });
    const narrow = postgresStore({ pool: single, schema });
    const ear = await listeningClient();
    const outbox = createOutbox(narrow, { source: "/o", notifier: postgresNotifier({ pool: single, schema }) });
    await pgTransactions(single).begin(async (client) => {
      for (let n = 0; n < 20; n++) await outbox.in(client).publish(Placed, { n });
      expect(single.waitingCount).toBe(1);
      expect(ear.heard).toEqual([]);
      await client.query(`DELETE FROM ${schema}.outbox_pending`);
    });
    await ear.until(() => ear.heard.length > 0);
    await single.end();
    await ear.end();
  });

  it("sends few statements for many calls", async () => {
    const ear = await listeningClient();
    await Promise.all(Array.from({ length: 1000 }, () => notifier.notify("outbox")));
    await pool.query("SELECT pg_notify($1, 'the end')", [channel]);
    await ear.until(() => ear.heard.includes("the end"));
    expect(ear.heard.length).toBeLessThanOrEqual(3);
    await ear.end();
  });

  it("rejects when it cannot notify", async () => {
    const ended = new pg.Pool({ connectionString: url });
    await ended.end();
    await expect(postgresNotifier({ pool: ended, schema }).notify("outbox")).rejects.toThrow("after calling end");
  });

  it("listens where 'directUrl' says, though the pool goes elsewhere", async () => {
    const elsewhere = new pg.Pool({ host: "127.0.0.1", port: 1 });
    const ear = await listenTo(postgresNotifier({ pool: elsewhere, schema, directUrl: url }));
    await notifier.notify("outbox");
    await ear.notified;
    await ear.close();
    await elsewhere.end();
  });

  it("distinguishes schemas whose names are as long as a channel may be", async () => {
    const [one, other] = ["a", "b"].map((end) => `${schema}${"_".repeat(44)}${end}`);
    const through = (name: string | undefined) => postgresNotifier({ pool, schema: name ?? "" });
    const ears = [await listenTo(through(one)), await listenTo(through(other))];
    await through(one).notify("outbox");
    await ears[0]?.notified;
    await through(other).notify("outbox");
    await ears[1]?.notified;
    expect(ears.map((ear) => ear.count())).toEqual([1, 1]);
    await Promise.all(ears.map((ear) => ear.close()));
  });
});

/** Resolves when it listens. */
async function listenTo(notifier: Notifier) {
  const [stop, begun, notified] = [new AbortController(), gate(), gate()];
  let count = 0;
  const listener = {
    listening: () => begun.open(),
    notified() {
      count++;
      notified.open();
    },
  };
  const session = notifier.listen("outbox", listener, stop.signal);
  await Promise.race([begun.opened, session]);
  return {
    notified: notified.opened,
    count: () => count,
    async close() {
      stop.abort();
      await session;
    },
  };
}
