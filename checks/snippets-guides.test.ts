import { randomBytes } from "node:crypto";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { settlesWithin } from "@postbox/testkit";
import { describeOnEach } from "@postbox/testkit/servers";
import pg from "pg";
import {
  createOutbox,
  createPublisher,
  createRelay,
  type EventDefinition,
  logTo,
  type Outbox,
  type Receiver,
  type Relay,
  type RunsReceiver,
  type Store,
  type TelemetryEvent,
} from "postbox";
import { type MemoryBroker, memoryBroker, memoryStore } from "postbox/memory";
import { type PostgresHealthProblem, postgresStore } from "postbox/postgres";
import { createSchedule, type Schedule, type ScheduleEntry } from "postbox/schedule";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { guideDatabases } from "./guide-database.js";
import { known, listedIn, named, pageText, snippets, statements, tableOf, until } from "./snippets.js";

const guide = "docs/guides/outbox.md";
const operating = "docs/guides/operating.md";
const src = "packages/postbox/src";
const sql = statements(guide);

type Order = { orderId: string; total: number };
type OrderPlaced = EventDefinition<"shop.orders.v1.OrderPlaced", Order, Order>;

const table = (head: string, page = guide) => tableOf(page, head);

describe("the tables of the guide to the outbox", () => {
  const store = memoryStore();
  const nonsense = { "?": 1 } as object;
  const sender = memoryBroker().sender();

  it.each([
    ["createRelay(store, sender, …)", () => createRelay(postgresStore({ pool: new pg.Pool() }), sender, nonsense)],
    ["createOutbox(store, …)", () => createOutbox(store, nonsense as { source: string })],
    ["postgresStore(…)", () => postgresStore(nonsense as { pool: pg.Pool })],
  ])("lists all options that %s knows", (head, make) => {
    const rows = table(`\`${head}\` | meaning | default`);
    expect(rows.map(([name]) => named(name)[0]).sort()).toEqual(known(make).sort());
  });

  it("lists all options that an entry of a schedule knows", () => {
    const rows = table("entry of `createSchedule(outbox, …)` | meaning | default");
    const outbox = createOutbox(store, { source: "/s" });
    const options = known(() => createSchedule(outbox, { entry: nonsense as ScheduleEntry }));
    expect(rows.map(([name]) => named(name)[0]).sort()).toEqual(options.sort());
  });

  it("lists all events of an outbox and a relay, with the level at which they are logged", () => {
    const levels = new Map<string, string>();
    for (const [cell, , level = ""] of table("event | when | `logTo`")) {
      for (const [at, name] of named(cell).entries()) {
        levels.set(name, level.split(", ")[at] ?? (level.split(", ")[0] as string));
      }
    }
    const all = [...pageText(`${src}/telemetry/events.ts`).matchAll(/readonly name: "([\w.-]+)"/g)].map(
      ([, name]) => name,
    );
    const ours = all.filter((name) => !/^(?:consumer|delivery|router|transport)\./.test(name as string));
    expect([...levels.keys()].sort()).toEqual(ours.sort());
    for (const [name, level] of levels) {
      const logged: string[] = [];
      const at = (which: string) => () => void logged.push(which);
      const logger = { trace: at("trace"), debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
      logTo(logger)({ name, box: "outbox" } as TelemetryEvent);
      expect([name, ...logged]).toEqual([name, level]);
    }
  });
});

describe("the tables of the guide to operating", () => {
  it("lists all options that store.health knows", async () => {
    const common = table("`store.health(…)` | meaning | default", operating);
    const rows = [...common, ...table("`postgresStore(…).health(…)` | meaning | default", operating)];
    const knownTo = async (store: Pick<Store, "health">) => {
      const asked = store.health({ "?": 1 } as object);
      return listedIn(
        await asked.then(
          () => new Error("it was taken"),
          (error: Error) => error,
        ),
      );
    };
    expect(common.map(([name]) => named(name)[0])).toEqual(await knownTo(memoryStore()));
    expect(rows.map(([name]) => named(name)[0])).toEqual(await knownTo(postgresStore({ pool: new pg.Pool() })));
  });

  it.each([
    ["problem", "health.ts"],
    ["problem of `postgresStore`", "stores/postgres/postgres-problems.ts"],
  ])("lists each %s", (head, file) => {
    const rows = table(`${head} | severity | what it means | what to do`, operating);
    const codes = [...pageText(`${src}/${file}`).matchAll(/readonly code: ([^;]+);/g)].flatMap(([, code = ""]) =>
      [...code.matchAll(/"([\w-]+)"/g)].map(([, each]) => each),
    );
    expect(rows.flatMap(([cell]) => named(cell)).sort()).toEqual(codes.sort());
  });
});

describeOnEach("postgres", (server) => {
  const prepare = guideDatabases(server.url);

  it("the guide to the outbox does what it says", async () => {
    const { folder, url } = await prepare(snippets(guide));
    process.env.DIRECT_URL = url;
    const load = (file: string) => import(join(folder, file));
    const { pool, store, outbox } = await load("store.ts");
    const count = async (part: string) => (await pool.query(`select from postbox.outbox_${part}`)).rowCount;
    const done = async () => (await pool.query("select from postbox.outbox_messages where status = 'done'")).rowCount;
    await pool.query("create table orders (id text primary key, total int not null)");
    await pool.query("create table invoices (order_id text primary key, total int not null)");

    const printed = vi.spyOn(console, "log").mockImplementation(() => {});
    await load("print-migration.ts");
    await pool.query(printed.mock.calls[0]?.[0]);
    printed.mockRestore();
    await store.migrate();

    const { broker } = (await load("broker.ts")) as { broker: MemoryBroker };
    const poison = { type: "other.v1.Thing", key: "order-1" };
    await store.transaction((tx: pg.ClientBase) => outbox.in(tx).send(poison));
    const { placeOrder, importOrders } = await load("place-order.ts");
    await placeOrder("order-1", 1);
    await expect(placeOrder("order-1", 1)).rejects.toThrow("duplicate key");
    await load("with-drizzle.ts");
    const imported = [3, 4, 5].map((total) => ({ orderId: `order-${total}`, total }));
    expect(await importOrders(imported)).toHaveLength(3);
    expect((await pool.query(sql.pending)).rows).toEqual([{ count: "7", oldest: expect.anything() }]);

    const { relay } = (await load("relay-strict.ts")) as { relay: Relay };
    relay.start();
    await until(async () => broker.depth("audit") === 5 && (await count("wait")) === 1);
    const held = { key: "order-1", due_at: Number.POSITIVE_INFINITY, waiting: "1", attempts: 0, error: null };
    expect((await pool.query(sql.held)).rows).toEqual([held]);
    const parked = await pool.query(sql.parked);
    expect(parked.rows).toMatchObject([
      { type: "other.v1.Thing", key: "order-1", attempts: 1, reason: expect.stringContaining("unroutable") },
    ]);
    expect((await pool.query(sql.relays)).rows).toMatchObject([{ relay_order: "key", lanes: "64" }]);
    expect(await store.admin.release("order-1", { by: "guide" })).toBe(true);
    await until(async () => broker.depth("audit") === 6 && (await count("hold")) === 0);
    broker.bind("other", [{ topic: "other.v1" }]);
    expect(await store.admin.retry({ ids: [parked.rows[0].id] }, { by: "guide" })).toEqual({ count: 1 });
    await until(async () => broker.depth("other") === 1 && (await done()) === 7);
    expect([await count("parked"), await count("pending"), await count("wait")]).toEqual([0, 0, 0]);
    await relay.stop();

    const notified = (await load("notified.ts")) as { relay: Relay; outbox: Outbox<pg.ClientBase> };
    const { OrderPlaced } = (await load("events.ts")) as { OrderPlaced: OrderPlaced };
    notified.relay.start();
    const listeners =
      "select from pg_stat_activity where application_name like 'postbox listener of postbox:postbox:outbox%'";
    await until(async () => (await pool.query(`${listeners} and datname = current_database()`)).rowCount === 1);
    await store.transaction((tx: pg.ClientBase) =>
      notified.outbox.in(tx).publish(OrderPlaced, { orderId: "order-6", total: 6 }),
    );
    await until(() => broker.depth("audit") === 7);
    await notified.relay.stop();

    const { takeOrders } = await load("take-orders.ts");
    const { billing, receiver } = (await load("billing.ts")) as { billing: RunsReceiver; receiver: Receiver };
    const taken = [8, 9].map((total) => ({ orderId: `order-${total}`, total }));
    const ids = await takeOrders(taken);
    const appended = await pool.query("select id from postbox.outbox_pending order by position");
    expect(appended.rows).toEqual(ids.map((id: string) => ({ id })));
    await expect(takeOrders([...taken, { orderId: "order-10", total: 10 }])).rejects.toThrow("duplicate key");
    billing.start(receiver);
    await until(async () => (await count("pending")) === 0);
    await billing.stop();
    const invoices = await pool.query("select order_id from invoices order by total");
    expect(invoices.rows).toEqual(taken.map(({ orderId }) => ({ order_id: orderId })));

    const { remind } = await load("remind.ts");
    await store.transaction((tx: pg.ClientBase) => remind(tx, "order-11", 11));
    expect(await count("scheduled")).toBe(1);
    await pool.query("update postbox.outbox_scheduled set due_at = due_at - interval '1 day'");
    const { remindAt, paid } = await load("payment-reminder.ts");
    const told = vi.spyOn(console, "log").mockImplementation(() => {});
    for (const days of [1, 2]) {
      await store.transaction((tx: pg.ClientBase) =>
        remindAt(tx, new Date(Date.now() + days * 86_400_000), "order-12", 12),
      );
      expect(await count("scheduled")).toBe(2);
    }
    for (const calls of [0, 1]) {
      await store.transaction((tx: pg.ClientBase) => paid(tx, "order-12"));
      expect(told).toHaveBeenCalledTimes(calls);
    }
    told.mockRestore();
    expect(await count("scheduled")).toBe(1);

    const { schedule } = (await load("reports.ts")) as { schedule: Schedule };
    await schedule.start();
    await schedule.stop();
    await pool.query(
      "update postbox.schedule set last_tick = last_tick - interval '1 day' where name = 'daily-report'",
    );
    await schedule.start();
    await until(async () => (await count("pending")) !== 0);
    await schedule.stop();
    const reports = await pool.query(
      "delete from postbox.outbox_pending where type = 'shop.reports.v1.ReportDue' returning id",
    );
    expect(reports.rows).toEqual([{ id: expect.stringMatching(/^daily-report\/\d{4}-\d\d-\d\dT0[45]:00:00\.000Z\//) }]);
    // In case a quarter of an hour has just started.
    await pool.query("delete from postbox.outbox_pending where type = 'shop.stock.v1.CheckDue'");

    const { relay: keeping } = (await load("relay-keeping.ts")) as { relay: Relay };
    const archived = vi.spyOn(console, "log").mockImplementation(() => {});
    await pool.query("update postbox.outbox_overflow set done_at = done_at - interval '8 days'");
    const old = await count("overflow");
    keeping.start();
    await until(() => archived.mock.calls.length === old && broker.depth("audit") === 8);
    archived.mockRestore();
    await keeping.stop();

    await placeOrder("order-7", 7);
    const info = vi.spyOn(console, "info").mockImplementation(() => {});
    const debug = vi.spyOn(console, "debug").mockImplementation(() => {});
    const before = new Set(process.listeners("SIGTERM"));
    const ended = load("relay-process.ts");
    await until(async () => broker.depth("audit") === 9 && (await count("pending")) === 0);
    for (const listener of process.listeners("SIGTERM")) if (!before.has(listener)) listener("SIGTERM");
    await ended;
    expect(pool.ended).toBe(true);
    expect(info.mock.calls.map(([line]) => line.split(" ")[0])).toEqual(["relay.owned", "relay.released"]);
    for (const spy of [info, debug]) spy.mockRestore();
  });

  it("the guide to the outbox publishes from other languages", async () => {
    const { url } = await prepare({ "nothing.ts": "export {};" });
    const pool = new pg.Pool({ connectionString: url, max: 1 });
    const role = `legacy_${randomBytes(6).toString("hex")}`;
    try {
      await postgresStore({ pool }).migrate();
      await pool.query("create table orders (id text, total int); insert into orders values ('2', 20), ('3', 30)");
      for (const name of ["publish", "fields", "rows", "many"]) await pool.query(sql[name] ?? "");
      const { rows } = await pool.query(
        "select status, topic, key, source, headers, event_version, convert_from(data, 'UTF8') as data from " +
          "postbox.outbox_messages order by status, position",
      );
      const source = `/${new URL(url).pathname.slice(1)}`;
      const placed = { status: "pending", topic: "shop.orders.v1", source, headers: {}, event_version: null };
      expect(rows).toEqual([
        { ...placed, key: "1", data: '{"orderId":"1"}' },
        { ...placed, key: "2", data: '{"orderId" : "2", "total" : 20}' },
        { ...placed, key: "3", data: '{"orderId" : "3", "total" : 30}' },
        { ...placed, key: "1", data: '{"orderId": "1"}' },
        { ...placed, topic: "shop.files.v1", key: null, data: "%PDF-" },
        {
          ...placed,
          status: "scheduled",
          key: "1",
          source: "/legacy",
          headers: { idempotency_key: "order-1" },
          event_version: "2",
          data: '{"orderId":"1"}',
        },
      ]);
      await pool.query(`create role ${role}; ${(sql.rights ?? "").replaceAll("legacy", role)}`);
      await pool.query(`set role ${role}; ${sql.publish}; ${sql.many}; ${sql.replace}; ${sql.replace}`);
      expect((await pool.query(sql.cancel ?? "")).rows).toEqual([{ cancel: true }]);
      expect((await pool.query(`${sql.cancel}`)).rows).toEqual([{ cancel: false }]);
      await pool.query("reset role");
    } finally {
      await pool.query(`reset role; drop owned by ${role}; drop role ${role}`);
      await pool.end();
    }
  });

  it("the guide to operating gives each role what it needs", async () => {
    const { url } = await prepare({ "nothing.ts": "export {};" });
    const owner = new pg.Pool({ connectionString: url, max: 1 });
    await postgresStore({ pool: owner }).migrate();
    const rights = statements(operating);
    const roles: string[] = [];
    const granted = (name: string, role: string) => (rights[name] ?? "").replaceAll(`TO ${name}`, `TO ${role}`);
    const as = async (name: string, work: (pool: pg.Pool) => Promise<unknown>, beside = "none") => {
      const role = `${name}_${randomBytes(6).toString("hex")}`;
      roles.push(role);
      await owner.query(`create role ${role}; ${granted(beside, role)} ${granted(name, role)}`);
      const pool = new pg.Pool({ connectionString: url, max: 2, options: `-c role=${role}` });
      try {
        await work(pool);
      } finally {
        await pool.end();
      }
    };
    try {
      await as("publisher", (pool) => pool.query(`${sql.publish}; ${sql.replace}; ${sql.cancel}`));
      await as("producer", async (pool) => {
        const store = postgresStore({ pool });
        const outbox = createOutbox(store, { source: "/orders" });
        await store.transaction(async (tx) => {
          await outbox.in(tx).send({ id: "1", type: "t" });
          await outbox.in(tx).send({ id: "2", type: "t", deliverAt: new Date(Date.now() + 60_000) });
        });
      });
      const schedule = async (pool: pg.Pool) => {
        const store = postgresStore({ pool });
        const outbox = createOutbox(store, { source: "/orders" });
        const deliverAt = new Date(Date.now() + 60_000);
        for (const id of ["3", "4"]) {
          await store.transaction((tx) => outbox.in(tx).send({ id, type: "t", deliverAt, scheduleKey: "a" }));
        }
        expect(await store.transaction((tx) => outbox.in(tx).cancel({ type: "t" }, "a"))).toBe(true);
      };
      await as("scheduler", schedule, "producer");
      const tick = async (pool: pg.Pool) => {
        const store = postgresStore({ pool });
        await store.transaction((tx) => store.tick(tx, "nightly"));
        const { lastTick: after, now } = await store.transaction((tx) => store.tick(tx, "nightly"));
        const claim = { after, tick: Math.floor(now) };
        expect(await store.transaction((tx) => store.tick(tx, "nightly", claim))).toMatchObject({
          claimed: claim.tick > after,
        });
      };
      await as("ticker", tick, "producer");
      await as("watcher", async (pool) => {
        const store = postgresStore({ pool });
        expect(await store.admin.stats()).toMatchObject({ pending: { count: 2 }, scheduled: { count: 1 } });
        expect((await store.admin.list()).messages).toHaveLength(3);
        expect(await store.admin.get("1")).toHaveLength(1);
        const { problems } = await store.health();
        expect(problems.map(({ code }) => code)).toEqual(["lanes-unowned"]);
      });
    } finally {
      for (const role of roles) await owner.query(`drop owned by ${role}; drop role ${role}`);
      await owner.end();
    }
  });

  it("the table of the guide has all parameters of publish, and all fields of publish_all", async () => {
    const { url } = await prepare({ "nothing.ts": "export {};" });
    const pool = new pg.Pool({ connectionString: url, max: 1 });
    try {
      await postgresStore({ pool }).migrate();
      const listed = table("parameter, and field of `publish_all` | meaning | default").flatMap(([cell]) =>
        named(cell),
      );
      const { rows } = await pool.query(
        "select distinct unnest(proargnames) as name from pg_proc where pronamespace = 'postbox'::regnamespace and " +
          "proname = 'publish'",
      );
      expect([...listed].sort()).toEqual(rows.map(({ name }) => name).sort());
      const unknown = pool.query(`select postbox.publish_all('[{"type": "t", "?": 1}]')`);
      const { hint } = await unknown.catch((error) => error);
      const fields = hint.replace(/^There are |\.$/g, "").split(", ");
      expect(fields.sort()).toEqual([...listed.filter((name) => name !== "strict_key_order"), "data_base64"].sort());
    } finally {
      await pool.end();
    }
  });

  it("the guide to operating looks, changes, replays and tells who did it", async () => {
    const { "store.ts": stored = "", "events.ts": events = "", "remind.ts": reminding = "" } = snippets(guide);
    const { folder } = await prepare({
      "store.ts": stored,
      "events.ts": events,
      "remind.ts": reminding,
      ...snippets(operating),
    });
    const load = (file: string) => import(join(folder, file));
    const { pool, store, outbox } = (await load("store.ts")) as {
      pool: pg.Pool;
      store: Store<pg.ClientBase>;
      outbox: Outbox<pg.ClientBase>;
    };
    const { OrderPlaced } = (await load("events.ts")) as { OrderPlaced: OrderPlaced };
    const lines: string[] = [];
    const printed = vi.spyOn(console, "log").mockImplementation((line: string) => void lines.push(line));
    const printedBy = async (work: () => Promise<unknown>) => {
      lines.length = 0;
      await work();
      return [...lines];
    };
    const broker = memoryBroker();
    const relay = createRelay(store, broker.sender(), {
      onSent: "keep",
      onPark: "hold",
      isPermanent: () => true,
      pollIntervalMs: 20,
      leaseMs: 3000,
      publishTimeoutMs: 900,
    });
    const publish = (orderId: string) =>
      store.transaction((tx) => outbox.in(tx).publish(OrderPlaced, { orderId, total: 1 }));
    const { admin } = store;
    const counts = async () => {
      const { pending, waiting, parked, done } = await admin.stats({ done: true });
      return [pending, waiting, parked, done].map((part) => part?.count);
    };
    try {
      await store.migrate();
      // No queue is bound to the topic, so the broker rejects: the first message of each key is parked, and the second
      // waits.
      const { id } = await publish("1");
      for (const order of ["1", "2"]) await publish(order);
      relay.start();
      await until(async () => String(await counts()) === "0,1,2,0");

      const { report, allParked, explain } = await load("look.ts");
      const reported = await printedBy(report);
      expect(reported[0]).toMatch(/^0 pending, the oldest for 0 ms; 2 parked$/);
      expect(reported[1]).toBe("2 keys held; 1 relays, 0 lanes without one");
      expect(reported[2]).toBe("shop.orders.v1: 0 pending, 2 parked");
      const parked = [];
      for await (const message of allParked("shop.orders.v1")) parked.push(message.id);
      expect(parked).toHaveLength(2);
      const explained = await printedBy(() => explain(id));
      expect(explained[0]).toContain("is parked after 1 tries");
      expect(explained[1]).toContain("unroutable");

      broker.bind("audit", [{ topic: "shop.orders.v1" }]);
      const { mend, retryAll, takeBack, quietly } = await load("change.ts");
      await mend(id, "1");
      await until(async () => String(await counts()) === "0,0,1,2");
      expect(await printedBy(() => retryAll("shop.orders.v1"))).toEqual(["1 messages would be sent again"]);
      await until(async () => String(await counts()) === "0,0,0,3");
      const { remind } = await load("remind.ts");
      await store.transaction((tx) => remind(tx, "3", 1));
      const [scheduled] = (await admin.list({ status: "scheduled" })).messages;
      expect(await takeBack(scheduled?.id)).toEqual({ count: 1 });
      await quietly(async () => {
        expect((await admin.stats()).lanes.unowned).toBe(64);
        await publish("4");
        expect((await counts())[0]).toBe(1);
      });
      await until(async () => String(await counts()) === "0,0,0,4");

      const { replay } = await load("replay.ts");
      const [from, to] = [-3_600_000, 3_600_000].map((ms) => new Date(Date.now() + ms));
      expect(await printedBy(() => replay("shop.orders.v1", from, to))).toEqual(["4 messages would be sent again"]);
      await until(async () => String(await counts()) === "0,0,0,8");
      const { lastChanges } = await load("audit.ts");
      const told = (await printedBy(lastChanges)).map((line) => line.slice(line.indexOf(" ") + 1));
      expect(told).toEqual([
        "ann: replay, 4 messages (new consumer)",
        "ann: resume, 0 messages",
        "ann: pause, 0 messages (the broker moves)",
        "ann: discard, 1 messages (cancelled)",
        "ann: retry, 1 messages (the exchange is back)",
        ...(told.includes("ann: release, 0 messages (the exchange is back)")
          ? ["ann: release, 0 messages (the exchange is back)"]
          : []),
        "ann: retry, 1 messages (the exchange is back)",
      ]);
    } finally {
      printed.mockRestore();
      await relay.stop();
      await pool.end();
    }
  });

  it("the guide to operating answers what is wrong over HTTP", async () => {
    const { "store.ts": stored = "", "events.ts": events = "" } = snippets(guide);
    const { folder } = await prepare({ "store.ts": stored, "events.ts": events, ...snippets(operating) });
    const load = (file: string) => import(join(folder, file));
    const { pool, store } = await load("store.ts");
    const { alarm } = (await load("alarm.ts")) as { alarm: (problem: PostgresHealthProblem) => string };
    process.env.PORT = "0";
    const { server: endpoint } = (await load("health-endpoint.ts")) as { server: Server };
    const errors = vi.spyOn(console, "error").mockImplementation(() => {});
    try {
      await until(() => endpoint.listening);
      const { port } = endpoint.address() as AddressInfo;
      const get = async (path: string) => {
        const response = await fetch(`http://127.0.0.1:${port}${path}`);
        return [response.status, await response.text()];
      };
      const answer = (healthy: boolean, ...problems: readonly object[]) => JSON.stringify({ healthy, problems });
      expect(await get("/other")).toEqual([404, ""]);
      expect(await get("/health")).toEqual([503, answer(false, { code: "schema-missing", severity: "error" })]);
      expect(errors.mock.calls[0]?.[0]).toContain("schema-missing: ");
      await store.migrate();
      expect(await get("/health")).toEqual([200, answer(true)]);
      const box = store.box("outbox");
      await box.renew("relay-1", 60_000, "key");
      await box.own("relay-1", 64);
      expect(await get("/health")).toEqual([200, answer(true)]);

      const { outbox } = await load("store.ts");
      const { OrderPlaced } = await load("events.ts");
      await store.transaction((tx: pg.ClientBase) =>
        outbox.in(tx).publish(OrderPlaced, { orderId: "1", total: 1 }, { id: "m1" }),
      );
      await pool.query("update postbox.outbox_pending set created_at = created_at - interval '1 hour'");
      expect(await get("/health")).toEqual([503, answer(false, { code: "unsent-too-old", severity: "error" })]);
      const { problems } = await store.health();
      expect(problems.map(alarm)).toEqual([
        expect.stringMatching(/^shop\.orders\.v1 stands still: m1 has waited for 36\d\d s$/),
      ]);
    } finally {
      errors.mockRestore();
      endpoint.close();
      await pool.end();
      delete process.env.PORT;
    }
  });

  describe("the guide to ordering", () => {
    /** What the webhook accepted, in order: the order's name and its total. */
    let got: string[] = [];
    /** The statuses with which the webhook answers an order before it accepts it. */
    const answers = new Map<string, number[]>();
    let webhook: Server;
    let pool: pg.Pool;
    let relays: Record<"perKey" | "holding" | "total" | "unordered", Relay>;
    let outbox: Outbox<pg.ClientBase>;
    let strict: Outbox<pg.ClientBase>;
    let runAgain: <R>(work: (tx: pg.ClientBase) => Promise<R>) => Promise<R>;
    let placed: OrderPlaced;
    let router: RunsReceiver;

    beforeAll(async () => {
      webhook = createServer(async (request, response) => {
        let body = "";
        for await (const chunk of request) body += chunk;
        const { orderId, total } = JSON.parse(body);
        const status = answers.get(orderId + total)?.shift() ?? 200;
        if (status === 200) got.push(orderId + total);
        response.writeHead(status).end();
      });
      await new Promise<void>((resolve) => webhook.listen(0, "127.0.0.1", resolve));
      process.env.WEBHOOK_URL = `http://127.0.0.1:${(webhook.address() as AddressInfo).port}`;
      const all = snippets(guide);
      const given = { "store.ts": all["store.ts"] ?? "", "events.ts": all["events.ts"] ?? "" };
      const { folder } = await prepare({ ...given, ...snippets("docs/guides/ordering.md") });
      const load = (file: string) => import(join(folder, file));
      const stored = await load("store.ts");
      ({ pool, outbox } = stored);
      await stored.store.migrate();
      relays = await load("relays.ts");
      strict = (await load("strict.ts")).outbox;
      ({ runAgain } = await load("run-again.ts"));
      placed = (await load("events.ts")).OrderPlaced;
      ({ router } = await load("consumer.ts"));
    });
    afterAll(async () => {
      await pool?.end();
      webhook?.close();
    });

    const order = (name: string) => ({ orderId: name[0] as string, total: Number(name.slice(1)) });
    /** Publishes these orders in a transaction that stays open. Call the returned function to commit it. */
    async function open(to: Outbox<pg.ClientBase>, ...names: readonly string[]): Promise<() => Promise<void>> {
      const client = await pool.connect();
      await client.query("BEGIN");
      await to.in(client).publishAll(names.map((name) => placed.message(order(name))));
      return async () => {
        await client.query("COMMIT");
        client.release();
      };
    }
    const publish = async (...names: readonly string[]) => (await open(outbox, ...names))();
    async function running(relay: Relay, work: () => Promise<void>): Promise<string[]> {
      got = [];
      relay.start();
      try {
        await work();
      } finally {
        await relay.stop();
      }
      return got;
    }
    const rest = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

    it("overlapping appends go out as they commit, and what is newer after both", async () => {
      const commit1 = await open(outbox, "a1");
      await publish("a2");
      const sent = await running(relays.perKey, async () => {
        await until(() => got.length === 1);
        await commit1();
        await publish("a3");
        await until(() => got.length === 3);
      });
      expect(sent).toEqual(["a2", "a1", "a3"]);
    });

    it("a failure holds its key and no other", async () => {
      answers.set("a1", [503]);
      await publish("a1", "a2", "b1", "a3", "b2");
      const sent = await running(relays.perKey, () => until(() => got.length === 5));
      expect(sent).toEqual(["b1", "b2", "a1", "a2", "a3"]);
    });

    it("a parked message leaves a gap, or holds its key until somebody frees it", async () => {
      answers.set("a1", [422, 422]);
      await publish("a1", "a2");
      expect(await running(relays.perKey, () => until(() => got.length === 1))).toEqual(["a2"]);
      await publish("a1", "a2", "b1");
      const waiting = "select from postbox.outbox_wait";
      const sent = await running(relays.holding, async () => {
        await until(async () => got.length === 1 && (await pool.query(waiting)).rowCount === 1);
        await postgresStore({ pool }).admin.release("a", { by: "guide" });
        await until(() => got.length === 2);
      });
      expect(sent).toEqual(["b1", "a2"]);
    });

    it("a total order waits for what is open, and allows no other order beside it", async () => {
      const commit1 = await open(outbox, "a1");
      await publish("b1");
      const sent = await running(relays.total, async () => {
        await rest(300);
        expect(got).toEqual([]);
        await expect(relays.perKey.run()).rejects.toMatchObject({ code: "option-invalid" });
        await commit1();
        await until(() => got.length === 2);
      });
      expect(sent).toEqual(["a1", "b1"]);
    });

    it("without an order, one that fails is overtaken", async () => {
      answers.set("a1", [503]);
      await publish("a1", "a2");
      expect(await running(relays.unordered, () => until(() => got.length === 2))).toEqual(["a2", "a1"]);
    });

    it("with strictKeyOrder, appends to a key take turns", async () => {
      const commit1 = await open(strict, "a1");
      const second = open(strict, "a2");
      expect(await settlesWithin(second, 200)).toBe(false);
      await commit1();
      await (await second)();
      expect(await running(relays.perKey, () => until(() => got.length === 2))).toEqual(["a1", "a2"]);
    });

    it("a deadlock of strictKeyOrder is run again", async () => {
      const first = { a: 0, b: 0 };
      const both = (one: "a" | "b", other: "a" | "b") =>
        runAgain(async (tx) => {
          await strict.in(tx).publish(placed, { orderId: one, total: 1 });
          first[one]++;
          await until(() => first[other] > 0);
          await strict.in(tx).publish(placed, { orderId: other, total: 2 });
        });
      await Promise.all([both("a", "b"), both("b", "a")]);
      expect(first.a + first.b).toBe(3);
      await running(relays.perKey, () => until(() => got.length === 4));
    });

    it("a retry in place keeps the order of effects", async () => {
      await pool.query(`
        create table shipments (at serial, order_id text, total int);
        create sequence tries;
        create function fail_first() returns trigger language plpgsql as $$
        begin
          if new.total = 1 and nextval('tries') = 1 then raise exception 'as planned'; end if;
          return new;
        end $$;
        create trigger fail_first before insert on shipments for each row execute function fail_first()`);
      const broker = memoryBroker();
      broker.bind("shipping", [placed]);
      const publisher = createPublisher(broker.sender(), { source: "/orders" });
      await publisher.publishAll(["a1", "a2"].map((name) => placed.message(order(name))));
      router.start(broker.receiver());
      await until(() => broker.depth("shipping") === 0);
      await router.stop();
      expect((await pool.query("select total from shipments order by at")).rows).toEqual([{ total: 1 }, { total: 2 }]);
      expect((await pool.query("select last_value from tries")).rows).toEqual([{ last_value: "2" }]);
    });
  });
});
