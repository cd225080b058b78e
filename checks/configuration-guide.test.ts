import { describeOnEach } from "@postbox/testkit/servers";
import type pg from "pg";
import {
  createMessaging,
  createPublisher,
  type EventDefinition,
  inboxOf,
  type Messaging,
  messagingOptionsFromEnv,
  type Store,
} from "postbox";
import type { ConnectedTransport } from "postbox/connect";
import { memoryBroker } from "postbox/memory";
import { afterEach, describe, expect, it, vi } from "vitest";
import { guideDatabases } from "./guide-database.js";
import { known, named, snippets, tableOf, until } from "./snippets.js";

const guide = "docs/guides/configuration.md";

describe("the tables of the guide to configuration", () => {
  it("list all options that createMessaging knows", () => {
    const rows = tableOf(guide, "`createMessaging(…)` | meaning | default");
    const nonsense = { "?": 1, service: "orders", sender: memoryBroker().sender() };
    const options = known(() => createMessaging(nonsense)).filter((name) => !name.endsWith("Url"));
    expect(rows.map(([name]) => named(name)[0]).sort()).toEqual(options.sort());
  });

  it("list all variables, with the options that they set", () => {
    const rows = tableOf(guide, "variable | values | option");
    const variables = known(() => messagingOptionsFromEnv({ "POSTBOX_?????????????????????": "1" }));
    expect(rows.flatMap(([name]) => named(name)).sort()).toEqual(variables.sort());
    for (const [name, values = "", option] of rows) {
      const value = values.includes("URL") ? "memory:" : values.includes("true") ? "true" : "1";
      const read = messagingOptionsFromEnv({ [named(name)[0] as string]: value });
      expect(Object.keys(read)).toEqual(named(option).slice(0, 1));
    }
  });
});

interface Loaded {
  pool: pg.Pool;
  store: Store<pg.ClientBase>;
  messaging: Messaging<Store<pg.ClientBase>>;
  placeOrder(orderId: string, total: number): Promise<void>;
  retryFailed(consumer: string, by: string): Promise<{ count: number }>;
  OrderPlaced: EventDefinition<"shop.orders.v1.OrderPlaced", { orderId: string; total: number }>;
}

interface TwoInboxes {
  accounting: Messaging;
  broker: ConnectedTransport;
}

describeOnEach("postgres", (server) => {
  const prepare = guideDatabases(server.url);
  afterEach(() => {
    for (const name of Object.keys(process.env)) if (/^POSTBOX_(?!TEST_)/.test(name)) delete process.env[name];
    vi.restoreAllMocks();
  });

  const switches = ["true", "false"].flatMap((outbox) => ["true", "false"].map((inbox) => ({ outbox, inbox })));
  it.each(switches)("the guide does what it says: outbox $outbox, inbox $inbox", async ({ outbox, inbox }) => {
    const { url, load } = await prepare(snippets(guide));
    Object.assign(process.env, {
      POSTBOX_DATABASE_URL: url,
      POSTBOX_ENABLE_OUTBOX: outbox,
      POSTBOX_ENABLE_INBOX: inbox,
    });
    for (const level of ["debug", "info", "warn", "error"] as const) {
      vi.spyOn(console, level).mockImplementation(() => {});
    }
    const printed = vi.spyOn(console, "log").mockImplementation(() => {});
    const files = ["messaging.ts", "events.ts", "place-order.ts", "mend.ts"];
    const modules: object[] = [];
    // One after the other: concurrent imports may load a shared module twice.
    for (const file of files) modules.push(await load(file));
    const loaded = Object.assign({}, ...modules) as Loaded;
    const { pool, store, messaging, placeOrder, retryFailed, OrderPlaced } = loaded;
    await store.migrate();
    // Without an outbox, a message may be handled before its transaction commits. With a single connection, the handler
    // has to wait for the commit.
    if (outbox === "false") pool.options.max = 1;
    await pool.query("create table orders (id text primary key, total int not null)");
    await pool.query("create table invoices (order_id text); create table audit (order_id text primary key)");
    const idsIn = async (table: string) =>
      (await pool.query(`select order_id as id from ${table} order by 1`)).rows.map(({ id }) => id);

    const before = new Set(process.listeners("SIGTERM"));
    const ended = load("service.ts");
    // A queue is bound once its consumer runs. Until then, an outbox would keep the message, but a broker would not.
    await until(() => process.listeners("SIGTERM").length > before.size);
    await placeOrder("order-1", 1);
    const twice = () => messaging.publisher.publish(OrderPlaced, { orderId: "order-2", total: 2 }, { id: "same" });
    await pool.query("insert into orders values ('order-2', 2)");
    for (let times = 0; times < 2; times++) await store.transaction(twice);
    if (outbox === "true") await expect(twice()).rejects.toMatchObject({ code: "transaction-missing" });
    await until(async () => (await idsIn("invoices")).length === (inbox === "true" ? 2 : 3));
    await until(async () => (await idsIn("audit")).length === 2);

    await store.transaction(() => messaging.publisher.publish(OrderPlaced, { orderId: "order-3", total: 3 }));
    if (inbox === "true") {
      await until(async () => (await store.admin.stats({ box: inboxOf("billing") })).parked.count === 1);
      await pool.query("insert into orders values ('order-3', 3)");
      expect(await retryFailed("billing", "ann")).toEqual({ count: 1 });
      expect(printed.mock.calls[0]).toEqual([
        expect.any(String),
        "shop.orders.v1.OrderPlaced",
        1,
        expect.stringContaining("there is no order order-3"),
      ]);
      await until(async () => (await idsIn("invoices")).length === 3);
    }
    await until(async () => (await idsIn("audit")).length === 3);
    expect(await idsIn("invoices")).toEqual(["order-1", "order-2", inbox === "true" ? "order-3" : "order-2"]);
    expect(messaging.relay === undefined).toBe(outbox === "false");

    if (inbox === "true") {
      await pool.query("create table ledger (order_id text, total int)");
      const { accounting, broker } = (await load("two-inboxes.ts")) as unknown as TwoInboxes;
      await accounting.start();
      const elsewhere = createPublisher(broker.sender(), { source: "/elsewhere" });
      for (let times = 0; times < 2; times++) {
        await elsewhere.publish(OrderPlaced, { orderId: "order-4", total: 4 }, { id: "same" });
      }
      await until(() => printed.mock.calls.some(([line]) => line === "mail about order-4"));
      await until(async () => (await idsIn("ledger")).length > 0);
      await accounting.close();
      expect(await idsIn("ledger")).toEqual(["order-4"]);
    }

    for (const listener of process.listeners("SIGTERM")) if (!before.has(listener)) listener("SIGTERM");
    await ended;
    expect(pool.ended).toBe(true);
  });
});
