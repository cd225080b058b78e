import { describeOnEach } from "@postbox/testkit/servers";
import type pg from "pg";
import {
  createPublisher,
  type DurableInboxOptions,
  durableInbox,
  type EventDefinition,
  inbox,
  inboxOf,
  type RunsReceiver,
  type Store,
} from "postbox";
import type { StoredMessage } from "postbox/admin";
import { memoryBroker, memoryStore } from "postbox/memory";
import { describe, expect, it, vi } from "vitest";
import { guideDatabases } from "./guide-database.js";
import { pageText, snippets, until } from "./snippets.js";

const guide = "docs/guides/inbox.md";

describe("the guide to the inbox", () => {
  const rows = pageText(guide)
    .split("\n")
    .filter((line) => /^\| `\w+` \|/.test(line))
    .map((line) => line.split(" | ").map((cell) => cell.replace(/^\| | \|$/g, "")));

  it("lists all options", () => {
    const known = (make: (options: DurableInboxOptions) => unknown): string[] => {
      try {
        make({ "????????????": 1 } as object);
      } catch (error) {
        return /known are (.*)/.exec((error as Error).message)?.[1]?.split(", ") ?? [];
      }
      return [];
    };
    const store = memoryStore();
    const durable = known((options) => durableInbox(store, options));
    const listed = rows.map(([name]) => name?.replaceAll("`", "")).filter((name) => durable.includes(name as string));
    expect(listed.sort()).toEqual(durable.sort());
    const plain = known((options) => inbox(store, options));
    expect(durable.filter((name) => !plain.includes(name))).toEqual(["batchSize"]);
  });
});

describeOnEach("postgres", (server) => {
  const prepare = guideDatabases(server.url);

  it("does what it says", async () => {
    const { "store.ts": stored = "", "events.ts": events = "" } = snippets("docs/guides/outbox.md");
    const { load } = await prepare({ "store.ts": stored, "events.ts": events, ...snippets(guide) });
    const { pool, store } = (await load("store.ts")) as unknown as { pool: pg.Pool; store: Store };
    const { OrderPlaced } = (await load("events.ts")) as unknown as {
      OrderPlaced: EventDefinition<"shop.orders.v1.OrderPlaced", { orderId: string; total: number }>;
    };
    const { billing } = (await load("billing.ts")) as unknown as { billing: RunsReceiver };
    const { shipping } = (await load("shipping.ts")) as unknown as { shipping: RunsReceiver };
    const operating = (await load("operate-billing.ts")) as unknown as {
      parked(): Promise<readonly StoredMessage[]>;
      retry(...ids: string[]): Promise<{ count: number }>;
      retryAll(error: string): Promise<{ count: number }>;
      retryStuck(ms: number): Promise<{ count: number }>;
    };
    const count = async (table: string) => (await pool.query(`select from ${table}`)).rowCount;
    const printed = vi.spyOn(console, "log").mockImplementation(() => {});
    const broker = memoryBroker();
    for (const consumer of ["billing", "shipping"]) broker.bind(consumer, [OrderPlaced]);
    const publisher = createPublisher(broker.sender(), { source: "/orders" });
    try {
      await store.migrate();
      await pool.query("create table invoices (order_id text primary key, total int not null)");
      await pool.query("create table shipments (order_id text primary key)");
      for (const router of [billing, shipping]) router.start(broker.receiver());
      for (const id of ["m1", "m1", "m2"]) {
        await publisher.publish(
          OrderPlaced,
          { orderId: `order-${id}`, total: 1 },
          { id, extensions: { correlationid: "c" } },
        );
      }
      await publisher.publish(OrderPlaced, { orderId: "order-m3", total: -1 }, { id: "m3" });
      await until(async () => (await count("invoices")) === 2 && (await count("shipments")) === 3);
      await until(async () => (await store.admin.stats({ box: inboxOf("billing") })).parked.count === 1);
      const { rows } = await pool.query(
        "select extensions from postbox.outbox_pending order by extensions ->> 'causationid' limit 1",
      );
      expect(rows[0].extensions).toEqual({ causationid: "m1", correlationid: "c" });

      expect((await operating.parked()).map(({ id }) => id)).toEqual(["m3"]);
      expect(printed.mock.calls[0]?.[0]).toMatch(/^m3: 1 tries, .*order order-m3 has a negative total$/);
      expect(await operating.retry("m3")).toEqual({ count: 1 });
      await until(async () => (await store.admin.audit({ box: inboxOf("billing") })).length === 1);
      await until(async () => (await operating.parked()).length === 1);
      expect(await operating.retryAll("negative total")).toEqual({ count: 1 });
      await until(async () => (await operating.parked()).length === 1);
      expect(await operating.retryStuck(60_000)).toEqual({ count: 0 });
      const seen = await pool.query(
        "select consumer, status, count(*)::int as count from postbox.inbox_messages group by 1, 2 order by 1, 2",
      );
      expect(seen.rows).toEqual([
        { consumer: "billing", status: "parked", count: 1 },
        { consumer: "billing", status: "processed", count: 2 },
        { consumer: "shipping", status: "processed", count: 3 },
      ]);
    } finally {
      printed.mockRestore();
      await Promise.all([billing.stop(), shipping.stop()]);
      await pool.end();
    }
  });
});
