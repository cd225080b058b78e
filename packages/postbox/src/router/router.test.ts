import { describe, expect, it } from "vitest";
import { z } from "zod";
import { constant } from "../backoff.js";
import { PermanentError } from "../errors.js";
import { defineEvent } from "../event/define-event.js";
import { createPublisher } from "../publisher/create-publisher.js";
import type { TelemetryEvent } from "../telemetry/events.js";
import { type MemoryBroker, memoryBroker } from "../transports/memory/memory-broker.js";
import type { Router } from "./handlers.js";
import { createRouter, type RouterOptions } from "./router.js";

const Placed = defineEvent({
  type: "shop.Placed",
  schema: z.object({ n: z.number() }),
  key: ({ n }) => `key-${n % 2}`,
});
const Other = defineEvent({ type: "shop.Other", schema: z.object({}) });

/** Resolves once `condition` holds; asked after every telemetry event, so nothing waits for time. */
function watcher() {
  const seen: TelemetryEvent[] = [];
  let check = () => {};
  return {
    seen,
    names: () => seen.map(({ name }) => name),
    telemetry: (event: TelemetryEvent) => {
      seen.push(event);
      check();
    },
    until: (condition: () => boolean) =>
      new Promise<void>((resolve) => {
        check = () => condition() && resolve();
        check();
      }),
    count: (name: TelemetryEvent["name"]) => seen.filter((event) => event.name === name).length,
  };
}

async function publish(broker: MemoryBroker, ...numbers: number[]): Promise<void> {
  broker.bind("billing", [Placed, Other]);
  const publisher = createPublisher(broker.sender(), { source: "/test" });
  await publisher.publishAll(numbers.map((n) => Placed.message({ n }, { id: `m${n}` })));
}

/** A promise with its handle: a handler waits there until the test lets it go on. */
function gate(): { readonly passed: Promise<void>; open(): void } {
  let open = () => {};
  const passed = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { passed, open: () => open() };
}

describe("a router", () => {
  it("hands decoded, validated data to the handler of its type and acks afterwards", async () => {
    const broker = memoryBroker();
    const watch = watcher();
    const got: unknown[] = [];
    await publish(broker, 1, 2);
    const router = createRouter("billing", { telemetry: watch.telemetry }).on(Placed, (data, { message, attempt }) => {
      got.push([data.n, message.id, attempt]);
    });
    router.start(broker.receiver());
    await watch.until(() => watch.count("delivery.acked") === 2);
    await router.stop();
    expect(got).toEqual([
      [1, "m1", 1],
      [2, "m2", 1],
    ]);
    expect(broker.depth("billing")).toBe(0);
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

  async function settleOf(options: RouterOptions, handler: (n: number) => void | Promise<void>, settled: number) {
    const broker = memoryBroker();
    const watch = watcher();
    await publish(broker, 1);
    const router = (createRouter("billing", { ...options, telemetry: watch.telemetry } as never) as Router).on(
      Placed,
      ({ n }) => handler(n),
    );
    router.start(broker.receiver());
    await watch.until(() => watch.count("delivery.acked") + watch.count("delivery.parked") === settled);
    await router.stop();
    return { broker, watch };
  }

  it("retries a failure, and parks it with the reason when its attempts are spent", async () => {
    const { broker, watch } = await settleOf(
      { maxAttempts: 3, backoff: constant(1) },
      () => Promise.reject(new Error("no paper")),
      1,
    );
    expect(watch.count("delivery.retried")).toBe(2);
    expect(broker.parked("billing")).toHaveLength(1);
    expect(broker.parked("billing")[0]).toMatchObject({
      attempt: 3,
      reason: { code: "attempts-spent", message: expect.stringContaining("no paper"), cause: { message: "no paper" } },
    });
  });

  it("parks at once what can never succeed", async () => {
    const { broker, watch } = await settleOf({}, () => Promise.reject(new PermanentError("wrong currency")), 1);
    expect(watch.count("delivery.retried")).toBe(0);
    expect(broker.parked("billing")[0]?.reason.message).toContain("wrong currency");
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
      const watch = watcher();
      await publish(broker, 1);
      const router = createRouter("billing", { unknown, telemetry: watch.telemetry }).on(Other, () => {});
      router.start(broker.receiver());
      await watch.until(() => watch.count("delivery.acked") + watch.count("delivery.parked") === 1);
      await router.stop();
      expect(broker.parked("billing")).toHaveLength(parked);
      if (parked === 1) expect(broker.parked("billing")[0]?.reason).toMatchObject({ code: "no-handler" });
    }
  });

  it.each([
    ["is no JSON", Buffer.from("{"), "data-not-decodable"],
    ["does not fit the schema", Buffer.from('{"n":"x"}'), "data-invalid"],
  ])("parks data that %s, without calling the handler", async (_, data, code) => {
    const broker = memoryBroker();
    const watch = watcher();
    broker.bind("billing", [Placed]);
    await createPublisher(broker.sender(), { source: "/test" }).send({ type: "shop.Placed", data });
    const router = createRouter("billing", { telemetry: watch.telemetry }).on(Placed, () => {
      throw new Error("was called");
    });
    router.start(broker.receiver());
    await watch.until(() => watch.count("delivery.parked") === 1);
    await router.stop();
    expect(broker.parked("billing")[0]?.reason).toMatchObject({ code });
  });

  it("handles one key in order, and different keys at the same time", async () => {
    const broker = memoryBroker();
    const watch = watcher();
    const order: number[] = [];
    let running = 0;
    let most = 0;
    await publish(broker, 1, 2, 3, 4, 5, 6, 7, 8);
    const bothRun = gate();
    const router = createRouter("billing", { concurrency: 4, telemetry: watch.telemetry }).on(Placed, async ({ n }) => {
      most = Math.max(most, ++running);
      order.push(n);
      if (running === 2) bothRun.open();
      await bothRun.passed;
      running--;
    });
    router.start(broker.receiver());
    await watch.until(() => watch.count("delivery.acked") === 8);
    await router.stop();
    expect(order.filter((n) => n % 2 === 1)).toEqual([1, 3, 5, 7]);
    expect(order.filter((n) => n % 2 === 0)).toEqual([2, 4, 6, 8]);
    expect(most).toBe(2);
  });

  it("takes no more than it can buffer", async () => {
    const broker = memoryBroker();
    const watch = watcher();
    const hold = gate();
    await publish(broker, 1, 3, 5, 7, 9, 11, 13, 15);
    const router = createRouter("billing", { concurrency: 1, maxBuffered: 2, telemetry: watch.telemetry });
    router.on(Placed, () => hold.passed);
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
    await watch.until(() => watch.count("delivery.received") === 1);
    await new Promise(setImmediate);
    // One runs, two wait; the fourth is not asked for.
    expect(handedOver).toBe(3);
    hold.open();
    await watch.until(() => watch.count("delivery.acked") === 8);
    await router.stop();
  });
});

describe("stopping a router", () => {
  it("finishes what runs, acks it, and gives back what has not begun, uncounted", async () => {
    const broker = memoryBroker();
    const watch = watcher();
    const hold = gate();
    await publish(broker, 1, 3);
    const router = createRouter("billing", { telemetry: watch.telemetry }).on(Placed, () => hold.passed);
    router.start(broker.receiver());
    await watch.until(() => watch.count("delivery.received") === 1);
    await new Promise(setImmediate);
    const stopped = router.stop();
    hold.open();
    await stopped;
    expect(watch.count("delivery.acked")).toBe(1);
    expect(watch.count("delivery.released")).toBe(1);
    expect(broker.depth("billing")).toBe(1);

    const again = createRouter("billing", { telemetry: watch.telemetry }).on(Placed, (_, { attempt, message }) => {
      expect([message.id, attempt]).toEqual(["m3", 1]);
    });
    again.start(broker.receiver());
    await watch.until(() => watch.count("delivery.acked") === 2);
    await again.stop();
  });

  it("does not ack what finishes after the deadline, and tells its handler to give up", async () => {
    const broker = memoryBroker();
    const watch = watcher();
    const hold = gate();
    await publish(broker, 1);
    let toldToStop = false;
    const router = createRouter("billing", { shutdownTimeoutMs: 1, telemetry: watch.telemetry });
    router.on(Placed, async (_, { signal }) => {
      await hold.passed;
      toldToStop = signal.aborted;
    });
    router.start(broker.receiver());
    await watch.until(() => watch.count("delivery.received") === 1);
    await router.stop();
    hold.open();
    await watch.until(() => watch.count("delivery.handled") === 1);
    await new Promise(setImmediate);
    expect(toldToStop).toBe(true);
    expect(watch.count("delivery.acked")).toBe(0);
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
    const watch = watcher();
    await publish(broker, 1, 2, 3);
    const later: (() => Promise<void>)[] = [];
    const router = createRouter("billing", { ack: "manual", telemetry: watch.telemetry }).on(
      Placed,
      ({ n }, { delivery }) => {
        if (n === 1) later.push(() => delivery.ack());
        else if (n === 2) later.push(() => delivery.park(new Error("by hand")));
        else later.push(() => delivery.retry(60_000));
      },
    );
    router.start(broker.receiver());
    await watch.until(() => watch.count("delivery.handled") === 3);
    expect(broker.depth("billing")).toBe(3);
    for (const settle of later) await settle();
    await expect(later[0]?.()).rejects.toMatchObject({ code: "delivery-settled" });
    await router.stop();
    expect(
      watch
        .names()
        .filter((name) => /acked|parked|retried/.test(name))
        .sort(),
    ).toEqual(["delivery.acked", "delivery.parked", "delivery.retried"]);
  });

  it("manual: a handler that throws has failed, and one that forgets holds the stop until the deadline", async () => {
    const broker = memoryBroker();
    const watch = watcher();
    await publish(broker, 1, 2);
    const options = { ack: "manual", maxAttempts: 1, shutdownTimeoutMs: 1, telemetry: watch.telemetry } as const;
    const router = createRouter("billing", options).on(Placed, ({ n }) => {
      if (n === 1) throw new Error("failed");
    });
    router.start(broker.receiver());
    await watch.until(() => watch.count("delivery.parked") === 1 && watch.count("delivery.handled") === 1);
    await router.stop();
    expect(watch.count("delivery.released")).toBe(1);
  });
});

describe("wrong use at run time", () => {
  it("refuses a second handler, middleware after handlers, a nameless consumer and unknown options", () => {
    const router = createRouter("billing").on(Placed, () => {});
    const untyped = router as unknown as { on(...args: unknown[]): void; use(...args: unknown[]): void };
    expect(() => untyped.on(Placed, () => {})).toThrow("[handler-exists] shop.Placed has a handler already");
    expect(() => untyped.use({ name: "retry" })).toThrow("[middleware-order] .use(retry()) after .on(...)");
    expect(() => createRouter("")).toThrow("give the consumer's name");
    expect(() => createRouter("billing", { concurency: 1 } as never)).toThrow("did you mean 'concurrency'?");
    expect(() => createRouter("billing", { concurrency: 0 })).toThrow("a whole number of at least 1");
  });
});
