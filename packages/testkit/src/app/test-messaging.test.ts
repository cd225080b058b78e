import { type NotSettledError, publishedBy, testMessaging } from "@postbox/testkit/app";
import {
  constant,
  createOutbox,
  createRouter,
  defineEvent,
  inbox,
  type Messaging,
  outboxOutputs,
  PermanentError,
  retry,
  transaction,
} from "postbox";
import { type ConnectedStore, connectStore } from "postbox/connect";
import { type MemoryStore, memoryStore } from "postbox/memory";
import { createSchedule } from "postbox/schedule";
import { afterAll, beforeAll, describe, expect, expectTypeOf, it } from "vitest";
import { z } from "zod";
import { gate } from "../gate.js";

const Placed = defineEvent({
  type: "shop.Placed",
  schema: z.object({ n: z.number() }),
  key: ({ n }) => `order ${n}`,
});
const Invoiced = defineEvent({ type: "shop.Invoiced", schema: z.object({ n: z.number() }) });
const Paid = defineEvent({ type: "shop.Paid", schema: z.object({ n: z.number() }) });

/** A service as a user writes it. */
function billing(messaging: Messaging<MemoryStore, true, true>, invoices: number[] = []) {
  messaging.consumer("billing").on(Placed, async ({ n }, { tx }) => {
    tx.defer(() => invoices.push(n));
    return [Invoiced.message({ n })];
  });
  return invoices;
}

const place = (
  { store, messaging }: { store: MemoryStore; messaging: Messaging<MemoryStore, true, true> },
  n: number,
) => store.transaction(() => messaging.publisher.publish(Placed, { n }));

async function failure(settled: Promise<void>): Promise<NotSettledError> {
  return settled.then(
    () => Promise.reject(new Error("it settled")),
    (error) => error,
  );
}

describe("settled", () => {
  it("reports a publish that a handler did not await, as with a database", async () => {
    await using app = testMessaging({ handledElsewhere: [Paid] });
    app.messaging.consumer("billing").on(Placed, async ({ n }) => {
      app.messaging.publisher.publish(Paid, { n }).catch(() => {});
    });
    await place(app, 1);
    expect((await failure(app.settled())).message).toContain("not-awaited");
    expect(await app.published(Paid)).toEqual([]);
  });

  it("resolves when everything is handled, including what handlers published in turn", async () => {
    await using app = testMessaging();
    const invoices = billing(app.messaging);
    const payments: number[] = [];
    app.messaging.consumer("payments").on(Invoiced, async ({ n }) => [Paid.message({ n })]);
    app.messaging.consumer("ledger").on(Paid, ({ n }) => void payments.push(n));
    await app.settled();
    await place(app, 1);
    await place(app, 2);
    expect(invoices).toEqual([]);
    await app.settled();
    expect(invoices.sort()).toEqual([1, 2]);
    expect(payments.sort()).toEqual([1, 2]);
    await place(app, 3);
    await app.settled();
    expect(payments.sort()).toEqual([1, 2, 3]);
  });

  it("waits for handlers that take real time", async () => {
    await using app = testMessaging();
    const { opened, open } = gate();
    let handled = false;
    app.messaging.consumer().on(Placed, async () => {
      await opened;
      handled = true;
    });
    await place(app, 1);
    const settled = app.settled();
    for (let turn = 0; turn < 50; turn++) await new Promise((resolve) => setImmediate(resolve));
    expect(handled).toBe(false);
    open();
    await settled;
    expect(handled).toBe(true);
  });

  it.each([true, false, "durable"] as const)(
    "reports a handler that failed, and why, with inbox: %s",
    async (inbox) => {
      await using app = testMessaging({ inbox, maxAttempts: 2, routerOptions: { backoff: constant(1_000) } });
      const thrown = new Error("the printer is on fire");
      const attempts: number[] = [];
      app.messaging.consumer("billing").on(Placed, (_, { attempt }) => {
        attempts.push(attempt);
        throw thrown;
      });
      const id = "a";
      await app.store.transaction(() => app.messaging.publisher.publish(Placed, { n: 1 }, { id }));
      const first = await failure(app.settled());
      expect(first).toMatchObject({ name: "NotSettledError", code: "not-settled", cause: thrown });
      const failed = { consumer: "billing", type: "shop.Placed", id, error: "the printer is on fire" };
      expect(first.messages).toEqual([{ status: "retrying", ...failed, retryInMs: 1_000 }]);
      expect(first.message).toContain(
        "consumer billing failed to handle shop.Placed (a): the printer is on fire; due again in 1000 ms",
      );
      // It is as unsettled as before, and nothing has happened since.
      await app.clock.advance(999);
      expect((await failure(app.settled())).messages).toMatchObject([{ retryInMs: 1 }]);
      expect(attempts).toEqual([1]);

      await app.clock.advance(1);
      const parked = await failure(app.settled());
      expect(attempts).toEqual([1, 2]);
      expect(parked.messages).toMatchObject([{ status: "parked", consumer: "billing", id }]);
      expect(parked.message).toContain("the printer is on fire");
      // Reported only once, since it will not continue.
      await app.settled();
    },
  );

  it("reports a message that was parked at once", async () => {
    await using app = testMessaging();
    app.messaging.consumer("billing").on(Placed, () => {
      throw new PermanentError("no such customer");
    });
    await place(app, 1);
    await expect(app.settled()).rejects.toThrow(/consumer billing parked shop\.Placed \(.*\): .*no such customer/);
  });

  it("reports messages that were parked while others were still handled", async () => {
    const { opened, open } = gate();
    const parked = gate();
    await using app = testMessaging({ telemetry: ({ name }) => name === "delivery.parked" && parked.open() });
    app.messaging.consumer("fails").on(Placed, () => {
      throw new PermanentError("no such customer");
    });
    app.messaging.consumer("slow").on(Placed, () => opened);
    await place(app, 1);
    const settled = failure(app.settled());
    await parked.opened;
    for (let turn = 0; turn < 50; turn++) await new Promise((resolve) => setImmediate(resolve));
    open();
    expect((await settled).messages).toMatchObject([{ status: "parked", consumer: "fails" }]);
  });

  it("sees what a handler publishes while the store is read", async () => {
    const memory = memoryStore();
    const { opened, open } = gate();
    const acked = gate();
    let isStale = false;
    const list: typeof memory.admin.list = async (options) => {
      const page = await memory.admin.list(options);
      if (options?.box === "outbox" && page.messages.length === 0 && isHandling && !isStale) {
        isStale = true;
        open();
        await acked.opened;
      }
      return page;
    };
    const store = { ...memory, admin: { ...memory.admin, list } };
    await using app = testMessaging({
      store,
      telemetry: (event) => event.name === "delivery.acked" && event.consumer === "billing" && acked.open(),
    });
    let isHandling = false;
    let isPaid = false;
    app.messaging.consumer("billing").on(Placed, async ({ n }) => {
      isHandling = true;
      await opened;
      return [Invoiced.message({ n })];
    });
    app.messaging.consumer("payments").on(Invoiced, () => {
      isPaid = true;
    });
    await place(app, 1);
    await app.settled();
    expect([isStale, isPaid]).toEqual([true, true]);
  });

  it("distinguishes a duplicate from a retry of the same message", async () => {
    await using app = testMessaging({ inbox: false, routerOptions: { backoff: constant(1_000) } });
    let attempts = 0;
    app.messaging.consumer("billing").on(Placed, () => {
      if (++attempts === 1) throw new Error("not yet");
    });
    await app.deliver(Placed, { n: 1 }, { id: "a" });
    await expect(app.settled()).rejects.toThrow("not yet");
    await app.deliver(Placed, { n: 1 }, { id: "a" });
    expect((await failure(app.settled())).messages).toMatchObject([{ id: "a", retryInMs: 1_000 }]);
    await app.clock.advance(1_000);
    await app.settled();
    expect(attempts).toBe(3);
  });

  it("reports a message that waits behind another one of its key", async () => {
    await using app = testMessaging({ inbox: "durable" });
    app.messaging.consumer("billing").on(Placed, (_, { message }) => {
      if (message.id === "first") throw new Error("not today");
    });
    await app.store.transaction(async () => {
      for (const id of ["first", "second"]) await app.messaging.publisher.publish(Placed, { n: 1 }, { id });
    });
    const { messages } = await failure(app.settled());
    expect(messages.map(({ id, status }) => `${id} ${status}`).sort()).toEqual(["first retrying", "second waiting"]);
  });

  it("reports a message that no consumer handles, unless another service does", async () => {
    await using app = testMessaging();
    billing(app.messaging);
    await place(app, 1);
    const { messages, message } = await failure(app.settled());
    expect(messages).toMatchObject([{ type: "shop.Invoiced", status: "retrying" }]);
    expect(messages[0]).not.toHaveProperty("consumer");
    expect(message).toContain("list its event in 'handledElsewhere'");

    await using partial = testMessaging({ handledElsewhere: [Invoiced] });
    billing(partial.messaging);
    await place(partial, 1);
    await partial.settled();
  });

  it("ends if handlers publish to each other without end", async () => {
    await using app = testMessaging();
    app.messaging.consumer("ping").on(Placed, ({ n }) => [Invoiced.message({ n })]);
    app.messaging.consumer("pong").on(Invoiced, ({ n }) => [Placed.message({ n })]);
    await place(app, 1);
    await expect(app.settled({ maxDeliveries: 20 })).rejects.toThrow("more than 20 deliveries");
  });

  it("ends if a handler hangs, and so does close", async () => {
    const app = testMessaging();
    app.messaging.consumer("billing").on(Placed, () => new Promise<never>(() => {}));
    await app.store.transaction(() => app.messaging.publisher.publish(Placed, { n: 1 }, { id: "a" }));
    await expect(app.settled({ timeoutMs: 50 })).rejects.toThrow(
      /nothing happened for 50 ms while consumer billing handles a.*clock\.advance/,
    );
    await app.close();
  });

  it("ends if a relay is paused", async () => {
    await using app = testMessaging({ handledElsewhere: [Placed] });
    await app.store.admin.pause({ by: "test" });
    await place(app, 1);
    await expect(app.settled()).rejects.toThrow(/nothing happens while shop\.Placed \(.*\) is in the outbox/);
  });

  it("rejects inside of a transaction, whose messages it could not see", async () => {
    await using app = testMessaging();
    await app.store.transaction(async () => {
      await expect(app.settled()).rejects.toThrow("[not-settled] settled() was called inside of a transaction");
    });
  });

  it("waits for the user's own routers", async () => {
    await using app = testMessaging({ handledElsewhere: [Invoiced] });
    const { store } = app;
    const { opened, open } = gate();
    const router = createRouter("billing")
      .use(transaction(store))
      .use(inbox(store))
      .use(outboxOutputs(createOutbox(store, { source: "/billing" })))
      .on(Placed, async ({ n }) => {
        await opened;
        return [Invoiced.message({ n })];
      });
    await router.start(app.receiver);
    await place(app, 1);
    const settled = app.settled();
    for (let turn = 0; turn < 50; turn++) await new Promise((resolve) => setImmediate(resolve));
    open();
    await settled;
    expect(await app.published(Invoiced)).toEqual([{ n: 1 }]);
    await router.stop();
  });

  it("accepts a service that starts its messaging itself", async () => {
    await using app = testMessaging({ handledElsewhere: [Invoiced] });
    const invoices = billing(app.messaging);
    const started = app.messaging.start();
    await place(app, 1);
    await app.settled();
    await started;
    expect(invoices).toEqual([1]);
  });
});

describe("published", () => {
  it("has the typed data of committed messages, and nothing that rolled back", async () => {
    await using app = testMessaging({ handledElsewhere: [Invoiced] });
    billing(app.messaging);
    await place(app, 1);
    await app.store
      .transaction(async () => {
        await app.messaging.publisher.publish(Placed, { n: 2 });
        throw new Error("rolls back");
      })
      .catch(() => {});
    const placed = await app.published(Placed);
    expectTypeOf(placed).toEqualTypeOf<{ n: number }[]>();
    expect(placed).toEqual([{ n: 1 }]);
    expect(await app.published(Invoiced)).toEqual([]);
    await app.settled();
    expect(await app.published(Invoiced)).toEqual([{ n: 1 }]);
    expect((await app.published()).map(({ type, key }) => [type, key])).toEqual([
      ["shop.Placed", "order 1"],
      ["shop.Invoiced", undefined],
    ]);
  });

  it("by one call, through its own transactions", async () => {
    await using app = testMessaging({ handledElsewhere: [Placed] });
    await place(app, 1);
    await app.settled();
    const { result, published } = await app.publishedBy(async () => {
      await place(app, 2);
      await place(app, 3);
      await app.store
        .transaction(async () => {
          await app.messaging.publisher.publish(Placed, { n: 4 });
          throw new Error("rolls back");
        })
        .catch(() => {});
      return "done";
    });
    expectTypeOf(result).toEqualTypeOf<string>();
    expect(result).toBe("done");
    expect(await published(Placed)).toEqual([{ n: 2 }, { n: 3 }]);
    await place(app, 5);
    expect(await published()).toHaveLength(2);
    const scheduled = await publishedBy(app.store, () =>
      app.store.transaction(() =>
        app.messaging.publisher.publish(Placed, { n: 6 }, { deliverAt: new Date(app.clock.now() + 1_000) }),
      ),
    );
    expect(await scheduled.published(Placed)).toEqual([{ n: 6 }]);
    await expect(app.publishedBy(() => Promise.reject(new Error("mine")))).rejects.toThrow("mine");
  });
});

describe("deliver", () => {
  it("acts like a message of another service: handled once, and not published here", async () => {
    await using app = testMessaging({ handledElsewhere: [Invoiced] });
    const invoices = billing(app.messaging);
    for (let times = 0; times < 2; times++) await app.deliver(Placed, { n: 1 }, { id: "a" });
    await app.settled();
    expect(invoices).toEqual([1]);
    expect(await app.published(Placed)).toEqual([]);
    expect(await app.published(Invoiced)).toEqual([{ n: 1 }]);
    await expect(app.deliver(Paid, { n: 1 })).rejects.toThrow("no queue wants message");
  });
});

describe("the clock", () => {
  it("delivers scheduled messages, to the millisecond", async () => {
    await using app = testMessaging({ handledElsewhere: [Invoiced] });
    const invoices = billing(app.messaging);
    const deliverAt = new Date(app.clock.now() + 24 * 3_600_000);
    await app.store.transaction(() => app.messaging.publisher.publish(Placed, { n: 1 }, { deliverAt }));
    await app.settled();
    await app.clock.advance(24 * 3_600_000 - 1);
    await app.settled();
    expect(invoices).toEqual([]);
    expect(app.clock.now()).toBe(deliverAt.getTime() - 1);
    await app.clock.advance(1);
    await app.settled();
    expect(invoices).toEqual([1]);
    expect(app.clock.now()).toBe(deliverAt.getTime());
  });

  it("drives the retry middleware while settled waits", async () => {
    await using app = testMessaging();
    let attempts = 0;
    app.messaging
      .consumer("billing", { outside: (router) => router.use(retry({ maxAttempts: 3, backoff: constant(60_000) })) })
      .on(Placed, () => {
        if (++attempts < 3) throw new Error("not yet");
      });
    await place(app, 1);
    const settled = app.settled();
    for (let turn = 0; turn < 50 && attempts === 0; turn++) await new Promise((resolve) => setImmediate(resolve));
    await app.clock.advance(60_000);
    expect(attempts).toBe(2);
    await app.clock.advance(60_000);
    await settled;
    expect(attempts).toBe(3);
  });
});

it("moves a schedule by the clock of the test", async () => {
  await using app = testMessaging({ handledElsewhere: [Paid] });
  const hourly = { everyMs: 3_600_000, message: Paid.message({ n: 1 }) };
  const schedule = createSchedule(app.messaging.outbox, { hourly }, { runtime: app.runtime });
  await schedule.start();
  for (const hours of [1, 2, 3]) {
    await app.clock.advance(3_600_000);
    await app.settled();
    expect(await app.published(Paid)).toHaveLength(hours);
  }
  await schedule.stop();
});

it("publishes each tick that the clock passes in one step, at its time", async () => {
  await using app = testMessaging({ handledElsewhere: [Paid] });
  const failures: string[] = [];
  const minutely = { everyMs: 60_000, message: (tick: Date) => Paid.message({ n: tick.getTime() - start }) };
  const start = app.clock.now();
  const schedule = createSchedule(
    app.messaging.outbox,
    { minutely },
    { runtime: app.runtime, telemetry: ({ name }) => name === "schedule.failed" && failures.push(name) },
  );
  await schedule.start();
  await app.clock.advance(600_000);
  await app.settled();
  expect((await app.published(Paid)).map(({ n }) => n)).toEqual(
    Array.from({ length: 10 }, (_, tick) => 60_000 * (tick + 1)),
  );
  expect(failures).toEqual([]);
  await schedule.stop();
});

describe("on PGlite", () => {
  let connected: Extract<ConnectedStore, { kind: "postgres" }>;
  beforeAll(async () => {
    const made = await connectStore("pglite:");
    if (made.kind !== "postgres") throw new Error("PGlite is PostgreSQL");
    connected = made;
    await connected.store.migrate();
    await connected.pool.query("create table invoices (n int not null)");
  });
  afterAll(() => connected.close());

  it("works the same, with handlers that write SQL", async () => {
    const { store, pool } = connected;
    await using app = testMessaging({ store, handledElsewhere: [Invoiced] });
    expect(app).not.toHaveProperty("clock");
    app.messaging.consumer("billing").on(Placed, async ({ n }, { tx }) => {
      await tx.query("insert into invoices values ($1)", [n]);
      if (n === 3) throw new Error("the printer is on fire");
      return [Invoiced.message({ n })];
    });
    const publish = (n: number) => store.transaction((tx) => app.messaging.in(tx).publish(Placed, { n }));
    await app.settled();
    // No relay runs outside of settled(), so only the call publishes.
    expect((await store.admin.stats()).lanes.owners).toEqual([]);
    const { published } = await app.publishedBy(() => publish(1));
    expect(await published(Placed)).toEqual([{ n: 1 }]);
    expect(await published(Invoiced)).toEqual([]);
    await publish(2);
    await app.settled();
    expect((await pool.query("select n from invoices order by n")).rows).toEqual([{ n: 1 }, { n: 2 }]);
    expect((await app.published(Invoiced)).map(({ n }) => n).sort()).toEqual([1, 2]);

    await publish(3);
    await expect(app.settled()).rejects.toThrow(/consumer billing failed to handle shop\.Placed .*printer is on fire/);
    expect((await pool.query("select n from invoices")).rows).toHaveLength(2);
  });

  it("ends if a transaction has the only connection", async () => {
    const { store, pool } = connected;
    await using app = testMessaging({ store });
    const client = await pool.connect();
    try {
      await expect(app.settled({ timeoutMs: 50 })).rejects.toThrow("the store did not answer within 50 ms");
    } finally {
      client.release();
    }
  });
});
