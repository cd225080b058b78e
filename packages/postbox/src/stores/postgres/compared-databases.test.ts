import { randomBytes } from "node:crypto";
import { recordingSender, telemetryLog, testMessage } from "@postbox/testkit";
import { describeOnEach } from "@postbox/testkit/servers";
import createKnex from "knex";
import pg from "pg";
import { constant, createMessaging, createPublisher, createRelay, defineEvent } from "postbox";
import { knex } from "postbox/knex";
import { memoryBroker } from "postbox/memory";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { pgTransactions } from "../../transactions/pg.js";
import { comparedDatabases } from "./compared-databases.js";
import { postgresStore } from "./postgres-store.js";

const schema = { "~standard": { version: 1, vendor: "test", validate: (value: unknown) => ({ value }) } } as const;
const Happened = defineEvent({ type: "test.Happened", schema });
const Done = defineEvent({ type: "test.Done", schema });

const differ = expect.objectContaining({ name: "PostboxError", code: "databases-differ" });

describeOnEach("postgres", ({ url }) => {
  const admin = new pg.Pool({ connectionString: url, max: 1 });
  const [name, other] = ["a", "b"].map((end) => `compared_${randomBytes(6).toString("hex")}_${end}`) as [
    string,
    string,
  ];
  const urlOf = (database: string) => Object.assign(new URL(url), { pathname: database }).href;
  const ends: (() => Promise<unknown>)[] = [];
  const poolOn = (database: string, max = 3) => {
    const pool = new pg.Pool({ connectionString: urlOf(database), max });
    ends.push(() => pool.end());
    return pool;
  };

  beforeAll(async () => {
    for (const database of [name, other]) {
      await admin.query(`create database ${database}`);
      await postgresStore({ pool: poolOn(database) }).migrate();
    }
  });
  afterEach(async () => {
    for (const end of ends.splice(0).reverse()) await end();
  });
  afterAll(async () => {
    for (const database of [name, other]) await admin.query(`drop database ${database} with (force)`);
    await admin.end();
  });

  const knexOn = (database: string) => {
    const db = createKnex({ client: "pg", connection: urlOf(database), pool: { min: 0, max: 2 } });
    ends.push(() => db.destroy());
    return db;
  };
  const apart = () => postgresStore({ pool: poolOn(name), transactions: knex(knexOn(other)) });
  type Apart = ReturnType<typeof apart>;
  const publish = (store: Apart) => store.transaction((tx) => store.append(tx, "outbox", [testMessage("m")]));

  it("ends a relay and refuses further publishes, with an error that names both databases", async () => {
    const store = apart();
    const log = telemetryLog();
    const relay = createRelay(store, recordingSender(), { pollIntervalMs: 10, telemetry: log.telemetry });
    expect(await relay.start()).toBe(true);
    await publish(store);
    await log.until("relay.failed");
    await expect(relay.stop()).rejects.toEqual(differ);
    await expect(relay.run()).rejects.toEqual(differ);
    await expect(relay.start()).rejects.toEqual(differ);
    await expect(publish(store)).rejects.toThrow(
      new RegExp(
        `^\\[databases-differ\\] the store's 'pool' is on the database "${name}" of .* that started at \\d.*Z, ` +
          `and its transactions of knex are on "${other}" of .*; give both the URL of one database`,
      ),
    );
    const { healthy, problems } = await store.health();
    expect(healthy).toBe(false);
    expect(problems).toContainEqual({
      code: "databases-differ",
      severity: "error",
      text: expect.stringContaining(`"${other}"`),
    });
  });

  it("refuses publishes in a process that runs no relay", async () => {
    const store = apart();
    await vi.waitFor(() => expect(publish(store)).rejects.toEqual(differ));
  });

  it("parks nothing that a consumer cannot handle for this reason", async () => {
    const store = apart();
    const broker = memoryBroker();
    const log = telemetryLog();
    const messaging = createMessaging({
      service: "shop",
      store,
      outbox: true,
      sender: broker.sender(),
      receiver: (queue) => broker.receiver({ queue }),
      maxAttempts: 1,
      pollIntervalMs: 10,
      telemetry: log.telemetry,
      routerOptions: { concurrency: 1, backoff: constant(10) },
    });
    messaging.consumer("billing").on(Happened, () => [Done.message({})]);
    await messaging.start();
    const publisher = createPublisher(broker.sender(), { source: "/elsewhere" });
    await publisher.publish(Happened, {});
    await log.until("relay.failed");
    await publisher.publish(Happened, {});
    expect(await log.until("router.failed")).toMatchObject({ error: { code: "databases-differ" } });
    await expect(messaging.close()).rejects.toEqual(differ);
    expect(log.of("delivery.parked")).toEqual([]);
  });

  it("compares once, without a second connection, where both are the same", async () => {
    const pool = poolOn(name, 1);
    const texts: string[] = [];
    pool.on("connect", (client) => {
      const { query } = client;
      vi.spyOn(client, "query").mockImplementation(((...args: [string | { text: string }]) => {
        texts.push(typeof args[0] === "string" ? args[0] : args[0].text);
        return Reflect.apply(query, client, args);
      }) as never);
    });
    const store = postgresStore({ pool, transactions: pgTransactions(pool) });
    for (let times = 0; times < 3; times++) {
      await store.transaction((tx) => store.append(tx, "outbox", [testMessage("m")]));
      await pool.query("SELECT 1");
    }
    expect(texts.filter((text) => text.includes("pg_postmaster_start_time"))).toHaveLength(2);
  });
});

describe("the comparison of two databases", () => {
  const database = { oid: "5", name: "shop", started: "1", address: "10.0.0.1", port: 5432, standby: false };
  type Answer = Partial<typeof database> | Error;
  const answering = (answers: Answer[]) => async () => {
    const answer = answers.shift();
    if (answer === undefined) throw new Error("asked too often");
    if (answer instanceof Error) throw answer;
    return { rows: [{ database: JSON.stringify({ ...database, ...answer }) }], rowCount: 1 };
  };
  const libraryOf = (execute: ReturnType<typeof answering>) => ({
    name: "knex",
    begin: <R>(work: (tx: object) => Promise<R>) => work({}),
    executor: () => execute,
  });
  const settled = () => new Promise((resolve) => setImmediate(resolve));

  async function compared(inTransaction: Answer[], onPool: Answer[]) {
    const execute = answering(inTransaction);
    const databases = comparedDatabases(answering(onPool), libraryOf(execute));
    await databases.inTransaction(execute);
    await settled();
    return { databases, execute };
  }

  it.each<[what: string, inTransaction: Answer[], onPool: Answer[]]>([
    ["the same database", [{}], [{}]],
    ["a failover after the first answer", [{ started: "1" }, { started: "2" }], [{ started: "2" }]],
    ["a standby that answers for the pool", [{}, {}], [{ started: "2", standby: true }]],
    ["a pool that was ended", [{}], [new Error("Cannot use a pool after calling end on the pool")]],
    ["a library that gives no second transaction", [{}, new Error("no connection")], [{ started: "2" }]],
  ])("finds no difference with %s", async (_what, inTransaction, onPool) => {
    const { databases } = await compared(inTransaction, onPool);
    expect(databases.difference()).toBeUndefined();
    expect([inTransaction, onPool]).toEqual([[], []]);
  });

  it.each<[what: string, inTransaction: Answer[], onPool: Answer[]]>([
    ["another database of the server", [{}, {}], [{ oid: "6", name: "stock" }]],
    ["a copy of the server", [{}, {}], [{ started: "2" }]],
    ["a server on a socket", [{}, {}], [{ started: "2", address: null as never }]],
  ])("finds a difference with %s", async (_what, inTransaction, onPool) => {
    const { databases, execute } = await compared(inTransaction, onPool);
    expect(databases.difference()).toContain("the server 10.0.0.1:5432 that started at 1970-01-01T00:00:01.000Z");
    await expect(databases.run("SELECT 1", [])).rejects.toEqual(differ);
    expect(() => databases.inTransaction(execute)).toThrow(differ);
  });

  it("begins anew after a question that failed, and asks nothing more once both are the same", async () => {
    const inTransaction: Answer[] = [new Error("canceled"), {}, {}];
    const execute = answering(inTransaction);
    const databases = comparedDatabases(answering([new Error("no connection"), {}]), libraryOf(execute));
    await expect(databases.inTransaction(execute)).rejects.toThrow("canceled");
    for (let times = 0; times < 2; times++) {
      await databases.inTransaction(execute);
      expect(databases.inTransaction(execute)).toBeUndefined();
      await settled();
    }
    expect(inTransaction).toEqual([]);
    expect(databases.inTransaction(execute)).toBeUndefined();
  });
});
