import { setTimeout } from "node:timers/promises";
import {
  describeOnEach,
  gate,
  manualRuntime,
  postgresTestData,
  recordingSender,
  telemetryLog,
  testMessage,
} from "@postbox/testkit";
import pg from "pg";
import { createOutbox, createRelay, defineEvent } from "postbox";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { pgTransactions } from "../../transactions/pg.js";
import { type PostgresStore, postgresStore } from "./postgres-store.js";

const Placed = defineEvent({ type: "shop.Placed", schema: z.object({ n: z.number() }) });

describe("a Postgres store without a connection to listen on", () => {
  it("cannot hint, and says so when a relay or an outbox is made", () => {
    const likePool = { connect() {}, query() {}, on() {}, listenerCount: () => 1 } as unknown as pg.Pool;
    const likePglite = new pg.Pool({ connection: {} } as pg.PoolConfig);
    for (const pool of [likePool, likePglite]) {
      const store = postgresStore({ pool });
      const why = "'hint' needs a store with a connection to listen on, which this postgres store has not";
      expect(() => createRelay(store, recordingSender(), { hint: true })).toThrow(why);
      expect(() => createOutbox(store, { source: "/o", hint: true })).toThrow(why);
    }
  });
});

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 4 });
  const data = postgresTestData({ connect, transactions: pgTransactions });
  const { pool, schema } = data;
  const channel = `postbox:${schema}:outbox`;
  let store: PostgresStore<pg.ClientBase>;

  beforeAll(async () => {
    await data.create();
    store = postgresStore({ pool, schema });
  });
  afterAll(data.drop);

  const listeners = async (): Promise<number[]> => {
    const name = `postbox listener of ${channel}`;
    const { rows } = await pool.query("SELECT pid FROM pg_stat_activity WHERE application_name = $1", [name]);
    return rows.map(({ pid }) => pid);
  };

  /** The server takes a moment to notice that a connection was closed. */
  async function allClosed(): Promise<void> {
    while ((await listeners()).length > 0);
  }

  /** What a client hears on the channel of the outbox, each with its payload. */
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
    const relay = createRelay(store, sender, { hint: true, runtime, telemetry: log.telemetry });
    relay.start();
    await log.until("relay.listening");
    while (log.of("relay.drained").length === 0) {
      await runtime.advance(1);
      await setTimeout(1);
    }
    expect(await listeners()).toHaveLength(1);
    const outbox = createOutbox(store, { source: "/o", hint: true });
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
    const relay = createRelay(store, sender, { hint: true, telemetry: log.telemetry });
    relay.start();
    await log.until("relay.listening");
    await pool.query("SELECT pg_terminate_backend(pid) FROM unnest($1::integer[]) AS pid", [await listeners()]);
    const deaf = await log.until("relay.deaf");
    expect(deaf.error.message).toContain("terminating connection");
    await store.transaction((tx) => store.append(tx, "outbox", [testMessage("meanwhile")]));
    await log.until("relay.listening", 2);
    await log.until("message.sent");
    expect(await listeners()).toHaveLength(1);
    await relay.stop();
    expect(sender.ids()).toEqual(["meanwhile"]);
    await allClosed();
  });

  it("hints outside of the user's transaction: it is heard before the commit", async () => {
    const ear = await listeningClient();
    const outbox = createOutbox(store, { source: "/o", hint: true });
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
    const outbox = createOutbox(narrow, { source: "/o", hint: true });
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

  it("makes few hints of many publishes", async () => {
    const ear = await listeningClient();
    const hints = store.hints?.sender("outbox", () => {});
    const client = await pool.connect();
    for (let n = 0; n < 1000; n++) hints?.send(client);
    client.release();
    await ear.until(() => ear.heard.length === 2);
    await pool.query("SELECT pg_notify($1, 'the end')", [channel]);
    await ear.until(() => ear.heard.includes("the end"));
    expect(ear.heard).toEqual(["", "", "the end"]);
    await ear.end();
  });

  it("says when a hint could not be sent", async () => {
    const ended = new pg.Pool({ connectionString: url });
    const failed = gate();
    const sender = postgresStore({ pool: ended, schema }).hints?.sender("outbox", () => failed.open());
    await ended.end();
    sender?.send({} as pg.ClientBase);
    await failed.opened;
  });

  it("listens where 'directUrl' says, though the pool goes elsewhere", async () => {
    const elsewhere = new pg.Pool({ host: "127.0.0.1", port: 1 });
    const direct = postgresStore({ pool: elsewhere, schema, directUrl: url });
    const ear = await listenTo(direct);
    store.hints?.sender("outbox", () => {}).send({} as pg.ClientBase);
    await ear.hinted;
    await ear.close();
    await elsewhere.end();
  });

  it("tells schemas apart whose names are as long as a channel may be", async () => {
    const [one, other] = ["a", "b"].map((end) => postgresStore({ pool, schema: `${schema}${"_".repeat(44)}${end}` }));
    const ears = [await listenTo(one), await listenTo(other)];
    one?.hints?.sender("outbox", () => {}).send({} as pg.ClientBase);
    await ears[0]?.hinted;
    other?.hints?.sender("outbox", () => {}).send({} as pg.ClientBase);
    await ears[1]?.hinted;
    expect(ears.map(({ hints }) => hints())).toEqual([1, 1]);
    await Promise.all(ears.map((ear) => ear.close()));
  });
});

/** Listens already when it resolves. */
async function listenTo(store: PostgresStore<pg.ClientBase> | undefined) {
  const [stop, begun, hinted] = [new AbortController(), gate(), gate()];
  let hints = 0;
  const listener = {
    listening: () => begun.open(),
    hinted() {
      hints++;
      hinted.open();
    },
  };
  const session = store?.hints?.listen("outbox", listener, stop.signal);
  await Promise.race([begun.opened, session]);
  return {
    hinted: hinted.opened,
    hints: () => hints,
    async close() {
      stop.abort();
      await session;
    },
  };
}
