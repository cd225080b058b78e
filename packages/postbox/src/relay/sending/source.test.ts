import { gate, manualRuntime, settlesWithin, telemetryLog, testMessage } from "@postbox/testkit";
import { constant, type Order, outboxReceiver, type RelayOptions, type Store } from "postbox";
import { type MemoryStore, memoryDatabase, memoryStore } from "postbox/memory";
import type { Box } from "postbox/store";
import type { Delivery } from "postbox/transport";
import { describe, expect, it } from "vitest";
import { laneOf } from "../../internal/lane.js";

const timing = { leaseMs: 3_000, pollIntervalMs: 20, backoff: constant(1) };
const revoked = { code: "delivery-revoked" };

async function commit(store: MemoryStore, ...ids: string[]): Promise<void> {
  await store.transaction((tx) =>
    store.append(
      tx,
      "outbox",
      ids.map((id) => testMessage(id)),
    ),
  );
}

/** Receives from a source with `deliver`. */
function receiveFrom(store: Store, deliver: (delivery: Delivery) => Promise<void>, options: RelayOptions = {}) {
  const log = telemetryLog();
  const controller = new AbortController();
  const source = outboxReceiver(store, { ...timing, ...options, telemetry: log.telemetry });
  const received = source.receive({ consumer: "c", events: [], deliver }, controller.signal);
  received.catch(() => {});
  return { source, log, received, abort: () => controller.abort() };
}

/** A store whose box overrides some of its verbs. */
function withBox(store: MemoryStore, change: (box: Box) => Partial<Box>): Store {
  const box = store.box("outbox");
  const unchanged: Partial<Box> = {
    own: (...args) => box.own(...args),
    renew: (...args) => box.renew(...args),
    release: (...args) => box.release(...args),
    read: (...args) => box.read(...args),
    due: (...args) => box.due(...args),
    late: (...args) => box.late(...args),
    suspect: (...args) => box.suspect(...args),
    settle: (...args) => box.settle(...args),
    promote: (...args) => box.promote(...args),
  };
  return { ...store, box: () => ({ ...unchanged, ...change(box) }) } as Store;
}

/** A store that fails to settle while `broken` returns true. */
const brittle = (store: MemoryStore, broken: () => boolean) =>
  withBox(store, (box) => ({
    settle: (...args) => (broken() ? Promise.reject(new Error("the store is away")) : box.settle(...args)),
  }));

/** A store with one message, in lanes whose owner has crashed. */
async function inherited(order: Order): Promise<MemoryStore> {
  const database = memoryDatabase();
  const store = memoryStore({ database });
  await commit(store, "1");
  await store.box("outbox").renew("dead", 1_000, order);
  await store.box("outbox").own("dead", 64);
  database.advance(1_000);
  return store;
}

describe("a source", () => {
  it("hands over the next row when the consumer has taken the last", async () => {
    const store = memoryStore();
    await commit(store, "1", "2");
    const [first, go, second] = [gate(), gate(), gate()];
    const deliveries: Delivery[] = [];
    const { received, abort } = receiveFrom(store, async (delivery) => {
      deliveries.push(delivery);
      if (deliveries.length === 2) return second.open();
      first.open();
      await go.opened;
    });
    await first.opened;
    expect(await settlesWithin(second.opened, 30)).toBe(false);
    go.open();
    await second.opened;
    abort();
    await Promise.all(deliveries.map((delivery) => delivery.ack()));
    await received;
    expect(store.contents("outbox").pending).toEqual([]);
  });

  it.each(["key", "total"] as const)(
    "settles while a consumer still takes the delivery and waits for that (%s)",
    async (order) => {
      const store = memoryStore();
      await commit(store, "1", "2", "3");
      const acked = gate();
      let count = 0;
      const { received, abort } = receiveFrom(
        store,
        async (delivery) => {
          await delivery.ack();
          if (++count === 3) acked.open();
        },
        { order },
      );
      await acked.opened;
      abort();
      await received;
    },
  );

  it("lets a handler take longer than a publish timeout or a lease, even during a stop", async () => {
    const runtime = manualRuntime();
    const store = memoryStore({ runtime });
    await commit(store, "1");
    const handed: Delivery[] = [];
    const { received, abort, log } = receiveFrom(store, async (delivery) => void handed.push(delivery), { runtime });
    while (handed.length === 0) await runtime.advance(1);
    await runtime.advance(3 * timing.leaseMs);
    abort();
    await runtime.advance(3 * timing.leaseMs);
    await store.box("outbox").renew("other", timing.leaseMs, "key");
    expect(await store.box("outbox").own("other", 64)).toEqual([]);
    await handed[0]?.ack();
    await received;
    expect(handed).toHaveLength(1);
    expect(log.of("relay.failed")).toEqual([]);
    expect(store.contents("outbox").pending).toEqual([]);
  });

  it("ends with the error of a consumer that cannot take, and gives its rows back", async () => {
    const store = memoryStore();
    await commit(store, "1", "2");
    const deliveries: Delivery[] = [];
    const broken = new Error("cannot take it");
    const { received } = receiveFrom(store, async (delivery) => {
      if (deliveries.push(delivery) === 2) throw broken;
    });
    await expect(received).rejects.toBe(broken);
    for (const delivery of deliveries) await expect(delivery.ack()).rejects.toMatchObject(revoked);
    expect(store.contents("outbox").pending).toHaveLength(2);
    await store.box("outbox").renew("other", 1_000, "key");
    expect(await store.box("outbox").own("other", 64)).toHaveLength(64);
  });

  it.each([
    ["key", false],
    ["key", true],
    ["total", false],
    ["total", true],
  ] as const)("does not pretend when nothing is stored until it stops (%s, waits: %s)", async (order, waits) => {
    const store = memoryStore();
    await commit(store, "1");
    const acked: Promise<unknown>[] = [];
    const deliver = async (delivery: Delivery) => {
      const ack = delivery.ack().catch((error: unknown) => error);
      acked.push(ack);
      if (waits) await ack;
    };
    const { received, abort, log } = receiveFrom(
      brittle(store, () => true),
      deliver,
      { order },
    );
    await log.until("relay.failed");
    abort();
    await received;
    expect(await Promise.all(acked)).toMatchObject([revoked]);
    expect(store.contents("outbox").pending).toHaveLength(1);
  });

  it.each(["key", "total"] as const)(
    "hands over nothing once it is to stop, though it was about to (%s)",
    async (order) => {
      const store = await inherited(order);
      const [counting, go] = [gate(), gate()];
      const slow = withBox(store, (box) => ({
        async suspect(...args) {
          counting.open();
          await go.opened;
          return box.suspect(...args);
        },
      }));
      const deliveries: Delivery[] = [];
      const { received, abort } = receiveFrom(slow, async (delivery) => void deliveries.push(delivery), { order });
      await counting.opened;
      abort();
      go.open();
      await received;
      expect(deliveries).toEqual([]);
      expect(store.contents("outbox").pending).toHaveLength(1);
    },
  );

  it.each(["key", "total"] as const)(
    "hands over nothing of lanes that turn out to be another's (%s)",
    async (order) => {
      const store = await inherited(order);
      let calls = 0;
      const elsewhere = withBox(store, (box) => ({
        suspect: async (...args) => (++calls === 1 ? new Set<number>() : box.suspect(...args)),
      }));
      let count = 0;
      const acked = gate();
      const deliver = async (delivery: Delivery) => {
        count++;
        await delivery.ack();
        acked.open();
      };
      // Its next renewal shows that it still owns the lanes.
      const short = { leaseMs: 90, pollIntervalMs: 5 };
      const { received, abort } = receiveFrom(elsewhere, deliver, { order, ...short });
      await acked.opened;
      abort();
      await received;
      expect([calls, count]).toEqual([1, 1]);
    },
  );

  it("settles when the store is reachable again", async () => {
    const store = memoryStore();
    await commit(store, "1");
    let failures = 3;
    const acked = gate();
    const { received, abort } = receiveFrom(
      brittle(store, () => failures-- > 0),
      (delivery) => delivery.ack().then(acked.open),
    );
    await acked.opened;
    expect(store.contents("outbox").pending).toEqual([]);
    abort();
    await received;
  });

  it("uses the relay's delay instead of an invalid one", async () => {
    const store = memoryStore();
    await commit(store, "1");
    const { log, received, abort } = receiveFrom(store, (delivery) =>
      delivery.attempt === 1 ? delivery.retry(Number.NaN) : delivery.ack(),
    );
    await log.until("message.sent");
    abort();
    await received;
    expect(log.of("message.failed")).toMatchObject([{ retryInMs: 1 }]);
  });

  it("gives idle lanes to another receiver while a handler in another lane takes long", async () => {
    const store = memoryStore();
    const ids = Array.from({ length: 100 }, (_, n) => `${n}`);
    await commit(store, ...ids);
    // In a lane that is given back: those with the highest numbers are.
    const slow = ids.find((id) => laneOf(id) > 48);
    const kept: Delivery[] = [];
    const deliver = async (delivery: Delivery) => {
      if (delivery.message.id === slow) kept.push(delivery);
      else await delivery.ack();
    };
    const first = receiveFrom(store, deliver);
    await first.log.until("message.sent", 99);
    const second = receiveFrom(store, deliver);
    let owned = 0;
    await second.log.until((event) => {
      if (event.name === "relay.owned") owned += event.lanes;
      return owned >= 31;
    }, "half of the lanes");
    first.abort();
    second.abort();
    await kept[0]?.ack();
    await Promise.all([first.received, second.received]);
    expect(kept).toHaveLength(1);
  });
});
