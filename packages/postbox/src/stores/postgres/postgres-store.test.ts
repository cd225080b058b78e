import { testMessage, testMessages } from "@postbox/testkit";
import { cuttable, describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import { remember } from "@postbox/testkit/suites";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { laneOf } from "../../internal/lane.js";
import type { PostgresStore } from "./index.js";
import { pgTransactions, postgresStore } from "./index.js";

describe("postgresStore", () => {
  const pool = new pg.Pool({ host: "127.0.0.1", port: 1 });

  it("refuses a schema that is no plain name", () => {
    for (const schema of ["", 'x"; drop schema public; --', "a.b", "1a", "ü", "a-b", "x".repeat(64)]) {
      expect(() => postgresStore({ pool, schema })).toThrow("[option-invalid] postgresStore: option 'schema' must be");
    }
  });

  it("refuses an unknown option, and a missing pool", () => {
    expect(() => postgresStore({ pool, shema: "x" } as { pool: pg.Pool })).toThrow("did you mean 'schema'?");
    expect(() => postgresStore({} as { pool: pg.Pool })).toThrow("option 'pool' is missing");
  });

  it("refuses a box that it does not have", async () => {
    const store = postgresStore({ pool });
    expect(() => store.box('x"')).toThrow("there is no box 'x\"'; there is 'outbox', and one for each consumer");
    await expect(store.append({} as pg.ClientBase, "outbx", [])).rejects.toThrow("there is no box 'outbx'");
  });

  it("outlives an idle connection that breaks", () => {
    const own = new pg.Pool();
    postgresStore({ pool: own });
    postgresStore({ pool: own });
    expect(own.listenerCount("error")).toBe(1);
    expect(() => own.emit("error", new Error("terminated"), {} as pg.ClientBase)).not.toThrow();
  });

  it("survives a connection that breaks while it is checked out and runs no statement", () => {
    const own = new pg.Pool();
    postgresStore({ pool: own });
    postgresStore({ pool: own });
    const client = new pg.Client();
    own.emit("connect", client as unknown as pg.PoolClient);
    expect(client.listenerCount("error")).toBe(1);
    expect(() => client.emit("error", new Error("terminated"))).not.toThrow();
  });

  it("says that the server cannot be reached, and why", async () => {
    const failed = postgresStore({ pool }).box("outbox").own("relay-1", 64);
    await expect(failed).rejects.toThrow("[store-unavailable] postgres cannot be reached: connect ECONNREFUSED");
    await expect(failed).rejects.toMatchObject({ cause: { code: "ECONNREFUSED" } });
  });
});

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 4 });
  const data = postgresTestData({ connect, transactions: pgTransactions });
  const { pool } = data;
  let store: PostgresStore<pg.ClientBase>;

  beforeAll(async () => {
    await data.create();
    store = postgresStore({ pool, schema: data.schema });
  });
  afterAll(data.drop);

  it("counts a server that takes no writes as one that is away: it is a standby since a failover", async () => {
    const writing = store.transaction(async (tx) => {
      await tx.query("SET LOCAL transaction_read_only = on");
      await store.append(tx, "outbox", [testMessage("m")]);
    });
    const error = await writing.then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    expect(error).toMatchObject({ code: "25006" });
    expect(store.isUnavailable(error)).toBe(true);
  });

  it("recognizes a connection reset of its own, but not that of another socket", async () => {
    const way = await cuttable(url);
    const own = new pg.Pool({ connectionString: way.url });
    const reset = postgresStore({ pool: own, schema: data.schema });
    const error = await reset
      .transaction(async (tx) => {
        const sleeping = tx.query("SELECT pg_sleep(60)");
        way.reset();
        await sleeping;
      })
      .catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: "ECONNRESET" });
    expect(reset.isUnavailable(error)).toBe(true);
    expect(reset.isUnavailable(Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" }))).toBe(false);
    expect(reset.isUnavailable(new Error("insert into x - read ECONNRESET"))).toBe(true);
    await own.end();
    way.close();
  });

  it("gives positions in the order of the call, also to a thousand", async () => {
    const messages = testMessages("m", 1000).reverse();
    await store.transaction((tx) => store.append(tx, "outbox", messages));
    const { rows } = await pool.query(`DELETE FROM ${data.schema}.outbox_pending RETURNING id, lane, position`);
    const inOrder = rows.sort((a, b) => Number(a.position) - Number(b.position));
    expect(inOrder.map(({ id }) => id)).toEqual(messages.map(({ id }) => id));
    expect(inOrder.every(({ id, lane }) => lane === laneOf(id))).toBe(true);
  });

  it.each([1, 2])("keeps 10 MB of any bytes, appended in a call of %i", async (count) => {
    const bytes = Uint8Array.from({ length: 10_000_000 }, (_, index) => index & 0xff);
    const more = { data: bytes, datacontenttype: "application/octet-stream" };
    const messages = testMessages("big", count).map((message) => ({ ...message, ...more }));
    await store.transaction((tx) => store.append(tx, "outbox", messages));
    const box = store.box("outbox");
    await box.renew("relay-1", 60_000, "key");
    const lanes = await box.own("relay-1", 64);
    const { rows } = await box.read(lanes.map(({ lane }) => ({ lane, limit: 5 })));
    expect(rows).toHaveLength(count);
    for (const { message } of rows) {
      expect(Buffer.compare(message.data, bytes)).toBe(0);
      expect(message.data.constructor).toBe(Uint8Array);
    }
    await box.settle(
      lanes,
      rows.map((row) => ({ row, to: "sent" })),
    );
    await box.release("relay-1");
  });

  it("copies the data's version into a column, and what the inbox shows of a message", async () => {
    const [first, second] = testMessages("v", 2, { extensions: { dataversion: "2.1", correlationid: "c1" } });
    if (first === undefined || second === undefined) throw new Error("two messages");
    await store.transaction(async (tx) => {
      await store.append(tx, "outbox", [first]);
      await store.append(tx, "outbox", [second, testMessage("none")]);
      await remember(store, tx, "billing", first);
    });
    const versions = await pool.query(
      `DELETE FROM ${data.schema}.outbox_pending RETURNING id, event_version, created_at`,
    );
    expect(Object.fromEntries(versions.rows.map(({ id, event_version }) => [id, event_version]))).toEqual({
      "v-0": "2.1",
      "v-1": "2.1",
      none: null,
    });
    const remembered = await pool.query(`SELECT * FROM ${data.schema}.inbox_message`);
    expect(remembered.rows).toMatchObject([
      {
        consumer: "billing",
        id: "v-0",
        type: first.type,
        source: first.source,
        topic: first.topic,
        correlation_id: "c1",
      },
    ]);
  });

  it("stores an error without NUL, cut to 2 KB between two characters", async () => {
    await store.transaction((tx) => store.append(tx, "outbox", [testMessage("m1")]));
    const box = store.box("outbox");
    await box.renew("relay-1", 60_000, "key");
    const lanes = await box.own("relay-1", 64);
    const [row] = (await box.read(lanes.map(({ lane }) => ({ lane, limit: 5 })))).rows;
    if (row === undefined) throw new Error("one row");
    await box.settle(lanes, [{ row, to: "parked", attempts: 1, error: `a\0b${"€".repeat(1000)}` }]);
    const { rows } = await pool.query(`SELECT reason, attempts FROM ${data.schema}.outbox_parked`);
    expect(rows).toEqual([{ reason: `ab${"€".repeat(682)}`, attempts: 1 }]);
  });
});
