import { gate, type TelemetryLog, telemetryLog } from "@postbox/testkit";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { constant } from "../backoff.js";
import { PermanentError } from "../errors.js";
import { defineEvent } from "../event/define-event.js";
import { type MemoryBroker, memoryBroker, memoryStore } from "../exports/memory.js";
import { durableInbox } from "../middleware/durable-inbox.js";
import { inbox } from "../middleware/inbox.js";
import { recover } from "../middleware/recover.js";
import { retry } from "../middleware/retry.js";
import { transaction } from "../middleware/transaction.js";
import { createPublisher } from "../publisher/create-publisher.js";
import type { Receiver } from "../transport.js";
import { createRouter } from "./create-router.js";
import { defineMiddleware } from "./middleware.js";
import type { RunsReceiver } from "./router.js";
import type { RouterOptions } from "./router-options.js";

const Placed = defineEvent({
  type: "shop.Placed",
  schema: z.object({ n: z.number() }),
  key: ({ n }) => `key-${n % 2}`,
});
const Other = defineEvent({ type: "shop.Other", schema: z.object({}) });

/** Resolves when `count` messages are acked or parked. */
async function settlements(log: TelemetryLog, count: number): Promise<void> {
  let settled = 0;
  await log.until(({ name }) => /^delivery\.(acked|parked)$/.test(name) && ++settled === count, `${count} settled`);
}

async function publish(broker: MemoryBroker, ...numbers: number[]): Promise<void> {
  broker.bind("billing", [Placed, Other]);
  const publisher = createPublisher(broker.sender(), { source: "/test" });
  await publisher.publishAll(numbers.map((n) => Placed.message({ n }, { id: `m${n}` })));
}

describe("a router", () => {
  it("says at the start that handlers may take every connection of their pool", async () => {
    const start = async (maxTransactions: number) => {
      const log = telemetryLog();
      const within = defineMiddleware({ name: "within", store: { maxTransactions }, run: (_, next) => next() });
      const router = createRouter("billing", { telemetry: log.telemetry, concurrency: 4 }).use(within);
      await router.on(Placed, () => {}).start(memoryBroker().receiver());
      await router.stop();
      return log.of("router.constrained");
    };
    for (const maxTransactions of [1, 3, 4]) {
      expect(await start(maxTransactions)).toMatchObject([{ consumer: "billing", concurrency: 4, maxTransactions }]);
    }
    expect(await start(5)).toEqual([]);
  });

  it("says at the start that several processes may store messages of a key out of order", async () => {
    const start = async (more: Pick<Receiver, "splitsKeys">, durable: boolean) => {
      const log = telemetryLog();
      const store = memoryStore();
      const router = createRouter("billing", { telemetry: log.telemetry }).use(transaction(store));
      const handlers = durable ? router.use(durableInbox(store)) : router.use(inbox(store));
      await handlers.on(Placed, () => {}).start({ ...memoryBroker().receiver(), ...more });
      await handlers.stop();
      return log.of("router.unordered").map(({ consumer }) => consumer);
    };
    expect(await start({ splitsKeys: true }, true)).toEqual(["billing"]);
    expect(await start({ splitsKeys: true }, false)).toEqual([]);
    expect(await start({ splitsKeys: false }, true)).toEqual([]);
    expect(await start({}, true)).toEqual([]);
  });

  it("counts the handlers of all routers that run on one store, and not of those that have stopped", async () => {
    const log = telemetryLog();
    const store = { maxTransactions: 6 };
    const within = defineMiddleware({ name: "within", store, run: (_, next) => next() });
    const routerOf = (consumer: string) =>
      createRouter(consumer, { telemetry: log.telemetry, concurrency: 2 })
        .use(within)
        .on(Placed, () => {});
    const [billing, shipping, audit] = [routerOf("billing"), routerOf("shipping"), routerOf("audit")];
    const run = async (router: RunsReceiver) => void (await router.start(memoryBroker().receiver()));
    for (const router of [billing, shipping]) await run(router);
    expect(log.of("router.constrained")).toEqual([]);
    await shipping.stop();
    await run(audit);
    expect(log.of("router.constrained")).toEqual([]);
    await run(shipping);
    expect(log.of("router.constrained")).toMatchObject([
      { consumer: "shipping", consumers: ["billing", "audit", "shipping"], concurrency: 6, maxTransactions: 6 },
    ]);
    await Promise.all([billing, shipping, audit].map((router) => router.stop()));
  });

  it("hands decoded, validated data to the handler of its type and acks afterwards", async () => {
    const broker = memoryBroker();
    const log = telemetryLog();
    const got: unknown[] = [];
    await publish(broker, 1, 2);
    const router = createRouter("billing", { telemetry: log.telemetry }).on(Placed, (data, { message, attempt }) => {
      got.push([data.n, message.id, attempt]);
    });
    router.start(broker.receiver());
    await log.until("delivery.acked", 2);
    await router.stop();
    expect(got).toEqual([
      [1, "m1", 1],
      [2, "m2", 1],
    ]);
    expect(broker.depth("billing")).toBe(0);
  });

  it("decodes by the codecs of the event, whatever its own are", async () => {
    const codec = (name: string) => ({
      contentType: "text/x-line",
      encode: (data: string) => Buffer.from(data),
      decode: (bytes: Uint8Array) => `${name} ${Buffer.from(bytes)}`,
    });
    const Line = defineEvent({ type: "shop.Line", schema: z.string(), codecs: [codec("the event's")] });
    const broker = memoryBroker();
    const log = telemetryLog();
    const got: string[] = [];
    const router = createRouter("billing", { telemetry: log.telemetry, codecs: [codec("the router's")] });
    router.on(Line, (line) => void got.push(line));
    broker.bind("billing", [Line]);
    const publisher = createPublisher(broker.sender(), { source: "/test" });
    await publisher.send({ type: Line.type, datacontenttype: "text/x-line", data: Buffer.from("line") });
    router.start(broker.receiver());
    await log.until("delivery.acked");
    await router.stop();
    expect(got).toEqual(["the event's line"]);
  });

  it("works statement by statement, and refuses to run without a handler", async () => {
    const router = createRouter("billing");
    await expect(router.run(memoryBroker().receiver())).rejects.toMatchObject({ code: "no-handler" });
    router.on(Placed, () => {});
    router.on(Other, () => {});
    const controller = new AbortController();
    controller.abort();
    await router.run(memoryBroker().receiver(), controller.signal);
  });

  async function settleOf(
    options: RouterOptions & { readonly ack?: "on-success" },
    handler: (n: number) => void | Promise<void>,
    settled: number,
  ) {
    const broker = memoryBroker();
    const log = telemetryLog();
    await publish(broker, 1);
    const router = createRouter("billing", { ...options, telemetry: log.telemetry }).on(Placed, ({ n }) => handler(n));
    router.start(broker.receiver());
    await settlements(log, settled);
    await router.stop();
    return { broker, log };
  }

  it("retries a failure, and parks it with the reason when its attempts are spent", async () => {
    const { broker, log } = await settleOf(
      { maxAttempts: 3, backoff: constant(1) },
      () => Promise.reject(new Error("no paper")),
      1,
    );
    expect(log.of("delivery.retried").length).toBe(2);
    expect(broker.parked("billing")).toHaveLength(1);
    expect(broker.parked("billing")[0]).toMatchObject({
      attempt: 3,
      reason: { code: "attempts-spent", message: expect.stringContaining("no paper"), cause: { message: "no paper" } },
    });
  });

  it("parks at once what can never succeed", async () => {
    const { broker, log } = await settleOf({}, () => Promise.reject(new PermanentError("wrong currency")), 1);
    expect(log.of("delivery.retried").length).toBe(0);
    expect(broker.parked("billing")[0]?.reason.message).toContain("wrong currency");
  });

  it("takes a second between tries when its backoff fails, and tells", async () => {
    const log = telemetryLog();
    const delays: (() => number)[] = [
      () => {
        throw new Error("a bug in backoff");
      },
      () => Number.NaN,
    ];
    const backoff = () => delays.shift()?.() ?? 0;
    // Delays take no time; the telemetry records them.
    const broker = memoryBroker({
      runtime: {
        schedule(task) {
          queueMicrotask(task);
          return () => {};
        },
      },
    });
    await publish(broker, 1);
    const router = createRouter("billing", { backoff, telemetry: log.telemetry }).on(Placed, (_, { attempt }) => {
      if (attempt < 3) throw new Error("failed");
    });
    router.start(broker.receiver());
    await log.until("delivery.acked");
    await router.stop();
    expect(log.of("delivery.retried").map(({ retryInMs }) => retryInMs)).toEqual([1000, 1000]);
    expect(log.of("router.failed").map(({ error }) => error.message)).toEqual([
      "[unknown] a bug in backoff",
      "[option-invalid] backoff(2) answered NaN; answer milliseconds, 0 or more",
    ]);
  });

  it("takes a thrown value that is no error as a failure too", async () => {
    let tries = 0;
    await settleOf({ backoff: constant(1) }, () => (++tries === 1 ? Promise.reject("a string") : undefined), 1);
    expect(tries).toBe(2);
  });

  it("parks what has no handler, or ignores it where it is told to", async () => {
    for (const [unknown, parked] of [
      ["park", 1],
      ["ignore", 0],
    ] as const) {
      const broker = memoryBroker();
      const log = telemetryLog();
      await publish(broker, 1);
      const router = createRouter("billing", { onUnknownType: unknown, unknownWaitMs: 0, telemetry: log.telemetry }).on(
        Other,
        () => {},
      );
      router.start(broker.receiver());
      await settlements(log, 1);
      await router.stop();
      expect(broker.parked("billing")).toHaveLength(parked);
      if (parked === 1) expect(broker.parked("billing")[0]?.reason).toMatchObject({ code: "no-handler" });
    }
  });

  it.each([
    ["is no JSON", Buffer.from("{"), "data-invalid"],
    ["does not fit the schema", Buffer.from('{"n":"x"}'), "data-invalid"],
  ])("parks data that %s, without calling the handler", async (_, data, code) => {
    const broker = memoryBroker();
    const log = telemetryLog();
    broker.bind("billing", [Placed]);
    await createPublisher(broker.sender(), { source: "/test" }).send({ type: "shop.Placed", data });
    const router = createRouter("billing", { telemetry: log.telemetry }).on(Placed, () => {
      throw new Error("was called");
    });
    router.start(broker.receiver());
    await log.until("delivery.parked");
    await router.stop();
    expect(broker.parked("billing")[0]?.reason).toMatchObject({ code });
  });

  it("takes middleware that answers without a promise, from callers without types", async () => {
    const broker = memoryBroker();
    const log = telemetryLog();
    await publish(broker, 1);
    const passing = defineMiddleware({ name: "passing", run: (_, next) => next() });
    const skipping = defineMiddleware({ name: "skipping", run: (() => []) as never });
    const router = createRouter("billing", { telemetry: log.telemetry })
      .use(passing)
      .use(skipping)
      .on(Placed, () => {});
    router.start(broker.receiver());
    await log.until("delivery.acked");
    await router.stop();
    expect(log.of("router.failed")).toEqual([]);
  });

  it("waits for a handler whose middleware throws instead of waiting for it", async () => {
    const broker = memoryBroker();
    const log = telemetryLog();
    await publish(broker, 1, 3);
    const hold = gate();
    const started: number[] = [];
    const hasty = defineMiddleware({
      name: "hasty",
      run(_, next) {
        void next();
        throw new PermanentError("at once");
      },
    });
    const router = createRouter("billing", { telemetry: log.telemetry })
      .use(hasty)
      .on(Placed, ({ n }) => {
        started.push(n);
        return hold.opened;
      });
    router.start(broker.receiver());
    await log.until("delivery.parked");
    await new Promise(setImmediate);
    expect(started).toEqual([1]);
    hold.open();
    await log.until("delivery.parked", 2);
    await router.stop();
    expect(started).toEqual([1, 3]);
  });

  it("handles an event without data where its schema takes nothing", async () => {
    const broker = memoryBroker();
    const log = telemetryLog();
    const Pinged = defineEvent({ type: "shop.Pinged", schema: z.undefined() });
    broker.bind("billing", [Pinged]);
    const publisher = createPublisher(broker.sender(), { source: "/test" });
    await publisher.publish(Pinged, undefined);
    await publisher.send({ type: "shop.Pinged" });
    const got: unknown[] = [];
    const router = createRouter("billing", { telemetry: log.telemetry }).on(Pinged, (data) => void got.push(data));
    router.start(broker.receiver());
    await log.until("delivery.acked", 2);
    await router.stop();
    expect(got).toEqual([undefined, undefined]);
  });

  it("handles one key in order, and different keys at the same time", async () => {
    const broker = memoryBroker();
    const log = telemetryLog();
    const order: number[] = [];
    let running = 0;
    let most = 0;
    await publish(broker, 1, 2, 3, 4, 5, 6, 7, 8);
    const bothRun = gate();
    const router = createRouter("billing", { concurrency: 4, telemetry: log.telemetry }).on(Placed, async ({ n }) => {
      most = Math.max(most, ++running);
      order.push(n);
      if (running === 2) bothRun.open();
      await bothRun.opened;
      running--;
    });
    router.start(broker.receiver());
    await log.until("delivery.acked", 8);
    await router.stop();
    expect(order.filter((n) => n % 2 === 1)).toEqual([1, 3, 5, 7]);
    expect(order.filter((n) => n % 2 === 0)).toEqual([2, 4, 6, 8]);
    expect(most).toBe(2);
  });

  it("takes no more than it can buffer", async () => {
    const broker = memoryBroker();
    const log = telemetryLog();
    const hold = gate();
    await publish(broker, 1, 3, 5, 7, 9, 11, 13, 15);
    const router = createRouter("billing", { concurrency: 1, maxBuffered: 2, telemetry: log.telemetry });
    router.on(Placed, () => hold.opened);
    let handedOver = 0;
    const receiver = broker.receiver();
    router.start({
      name: "counting",
      receive(subscription, signal) {
        const deliver: typeof subscription.deliver = (delivery) => {
          handedOver++;
          return subscription.deliver(delivery);
        };
        return receiver.receive({ ...subscription, deliver }, signal);
      },
    });
    await log.until("delivery.received");
    await new Promise(setImmediate);
    // One runs and two wait; the router does not take a fourth.
    expect(handedOver).toBe(3);
    hold.open();
    await log.until("delivery.acked", 8);
    await router.stop();
  });
});

describe("stopping a router", () => {
  it("finishes what runs, acks it, and gives back what has not begun, uncounted", async () => {
    const broker = memoryBroker();
    const log = telemetryLog();
    const hold = gate();
    await publish(broker, 1, 3);
    const router = createRouter("billing", { telemetry: log.telemetry }).on(Placed, () => hold.opened);
    router.start(broker.receiver());
    await log.until("delivery.received");
    await new Promise(setImmediate);
    const stopped = router.stop();
    hold.open();
    await stopped;
    expect(log.of("delivery.acked").length).toBe(1);
    expect(log.of("delivery.released").length).toBe(1);
    expect(broker.depth("billing")).toBe(1);

    const again = createRouter("billing", { telemetry: log.telemetry }).on(Placed, (_, { attempt, message }) => {
      expect([message.id, attempt]).toEqual(["m3", 1]);
    });
    again.start(broker.receiver());
    await log.until("delivery.acked", 2);
    await again.stop();
  });

  it("does not ack what finishes after the deadline, and tells its handler to give up", async () => {
    const broker = memoryBroker();
    const log = telemetryLog();
    const hold = gate();
    await publish(broker, 1);
    let toldToStop = false;
    const router = createRouter("billing", { shutdownTimeoutMs: 1, telemetry: log.telemetry });
    router.on(Placed, async (_, { signal }) => {
      await hold.opened;
      toldToStop = signal.aborted;
    });
    router.start(broker.receiver());
    await log.until("delivery.received");
    await router.stop();
    hold.open();
    await log.until("delivery.handled");
    await new Promise(setImmediate);
    expect(toldToStop).toBe(true);
    expect(log.of("delivery.acked").length).toBe(0);
    expect(broker.depth("billing")).toBe(1);
  });

  it("may be started again after a stop, but not twice at once", async () => {
    const router = createRouter("billing").on(Placed, () => {});
    const broker = memoryBroker();
    router.start(broker.receiver());
    expect(() => router.start(broker.receiver())).toThrow(expect.objectContaining({ code: "already-started" }));
    await router.stop();
    router.start(broker.receiver());
    await router.stop();
  });

  it("a receiver that fails for good ends the run with its error", async () => {
    const router = createRouter("billing").on(Placed, () => {});
    const receiver = { name: "broken", receive: () => Promise.reject(new Error("access refused")) };
    await expect(router.run(receiver)).rejects.toThrow("access refused");
    router.start(receiver);
    await expect(router.stop()).rejects.toThrow("access refused");
  });
});

describe("ack strategies", () => {
  it("manual: the handler settles, also after it returned; a second time is refused", async () => {
    const broker = memoryBroker();
    const log = telemetryLog();
    await publish(broker, 1, 2, 3);
    const later: (() => Promise<void>)[] = [];
    const router = createRouter("billing", { ack: "manual", telemetry: log.telemetry }).on(
      Placed,
      ({ n }, { delivery }) => {
        if (n === 1) later.push(() => delivery.ack());
        else if (n === 2) later.push(() => delivery.park(new Error("by hand")));
        else later.push(() => delivery.retry(60_000));
      },
    );
    router.start(broker.receiver());
    await log.until("delivery.handled", 3);
    expect(broker.depth("billing")).toBe(3);
    for (const settle of later) await settle();
    await expect(later[0]?.()).rejects.toMatchObject({ code: "delivery-settled" });
    await router.stop();
    expect(
      log.events
        .map(({ name }) => name)
        .filter((name) => /acked|parked|retried/.test(name))
        .sort(),
    ).toEqual(["delivery.acked", "delivery.parked", "delivery.retried"]);
  });

  it("manual: a handler that throws has failed, and one that forgets holds the stop until the deadline", async () => {
    const broker = memoryBroker();
    const log = telemetryLog();
    await publish(broker, 1, 2);
    const options = { ack: "manual", maxAttempts: 1, shutdownTimeoutMs: 1, telemetry: log.telemetry } as const;
    const router = createRouter("billing", options).on(Placed, ({ n }) => {
      if (n === 1) throw new Error("failed");
    });
    router.start(broker.receiver());
    await log.until("delivery.parked");
    await log.until("delivery.handled");
    await router.stop();
    expect(log.of("delivery.released").length).toBe(1);
  });
});

describe("what a handler does by hand", () => {
  it("a failure after the ack is told, and changes nothing", async () => {
    const broker = memoryBroker();
    const log = telemetryLog();
    await publish(broker, 1);
    const router = createRouter("billing", { ack: "manual", telemetry: log.telemetry }).on(
      Placed,
      async (_, { delivery }) => {
        await delivery.ack();
        throw new Error("a bug after the ack");
      },
    );
    router.start(broker.receiver());
    await log.until("router.failed");
    await router.stop();
    expect(log.of("router.failed")[0]?.error.message).toContain("a bug after the ack");
    expect(log.events.map(({ name }) => name)).toEqual(["delivery.received", "delivery.acked", "router.failed"]);
  });

  it("may give a message back", async () => {
    const broker = memoryBroker();
    const log = telemetryLog();
    await publish(broker, 1);
    const router = createRouter("billing", { ack: "manual", telemetry: log.telemetry }).on(Placed, (_, { delivery }) =>
      log.of("delivery.released").length === 0 ? delivery.release() : delivery.ack(),
    );
    router.start(broker.receiver());
    await log.until("delivery.acked");
    await router.stop();
    expect(log.of("delivery.received").map(({ attempt }) => attempt)).toEqual([1, 1]);
  });

  it("does not settle what a middleware ended: that is acked", async () => {
    const broker = memoryBroker();
    const log = telemetryLog();
    await publish(broker, 1, 2);
    const router = createRouter("billing", { ack: "manual", telemetry: log.telemetry })
      .use(recover(() => {}))
      .use(defineMiddleware({ name: "skip", run: async ({ message }, next) => (message.id === "m1" ? [] : next()) }))
      .on(Placed, () => {
        throw new Error("recovered from");
      });
    router.start(broker.receiver());
    await log.until("delivery.acked", 2);
    await router.stop();
    expect(broker.depth("billing")).toBe(0);
    expect(log.of("delivery.handled")).toEqual([]);
  });
});

it("a handler that returned in one try and failed in the next has not taken over the settling", async () => {
  const broker = memoryBroker();
  const log = telemetryLog();
  await publish(broker, 1);
  let tries = 0;
  const failing = defineMiddleware({
    name: "failing",
    async run(_, next) {
      await next();
      throw new Error("after the handler");
    },
  });
  const router = createRouter("billing", { ack: "manual", telemetry: log.telemetry })
    .use(recover(() => {}))
    .use(retry({ maxAttempts: 2, backoff: constant(0) }))
    .use(failing)
    .on(Placed, () => {
      if (++tries === 2) throw new Error("in the second try");
    });
  router.start(broker.receiver());
  await log.until("delivery.acked");
  await router.stop();
  expect(tries).toBe(2);
});

describe("a run that fails in the background", () => {
  it("tells telemetry, lets itself be started again, and rejects the stop", async () => {
    const log = telemetryLog();
    const router = createRouter("billing", { telemetry: log.telemetry }).on(Placed, () => {});
    const broken = { name: "broken", receive: () => Promise.reject(new Error("access refused")) };
    router.start(broken);
    await log.until("router.failed");
    await new Promise(setImmediate);
    router.start(broken);
    await expect(router.stop()).rejects.toThrow("access refused");
    expect(() => createRouter("empty").start(broken)).toThrow("[no-handler]");
    expect(() => (router as unknown as { on(...args: unknown[]): void }).on(Other, () => {})).toThrow(
      "[already-started] router billing has run already; register shop.Other before it does",
    );
  });
});

describe("wrong use at run time", () => {
  it("refuses a second handler, middleware after handlers, a nameless consumer and unknown options", () => {
    const router = createRouter("billing").on(Placed, () => {});
    const untyped = router as unknown as { on(...args: unknown[]): void; use(middleware: unknown): void };
    expect(() => untyped.on(Placed, () => {})).toThrow("[handler-exists] shop.Placed has a handler already");
    expect(() => untyped.use(retry())).toThrow("[middleware-order] .use(retry()) after .on(...)");
    expect(() => untyped.use(retry)).toThrow("[option-invalid] .use(...) takes a middleware: call its factory");
    expect(() => untyped.on("shop.Placed", () => {})).toThrow("[option-invalid] .on(event, handler) takes what");
    expect(() => untyped.on(Other)).toThrow("[option-invalid] .on(event, handler) takes what");
    expect(() => router.start(undefined as never)).toThrow("[option-invalid] router billing: give the receiver");
    expect(() => createRouter("")).toThrow("give the consumer's name");
    expect(() => createRouter("billing", { concurency: 1 } as never)).toThrow("did you mean 'concurrency'?");
    expect(() => createRouter("billing", { concurrency: 0 })).toThrow("a whole number of at least 1");
  });
});
