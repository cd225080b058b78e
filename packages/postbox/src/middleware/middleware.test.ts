import { gate, telemetryLog } from "@postbox/testkit";
import {
  constant,
  correlation,
  createOutbox,
  createPublisher,
  createRouter,
  currentTransaction,
  deadline,
  defineEvent,
  inbox,
  type Message,
  outboxOutputs,
  PermanentError,
  publishOutputs,
  recover,
  retry,
  timeout,
  transaction,
} from "postbox";
import { memoryBroker, memoryStore } from "postbox/memory";
import { defineMiddleware } from "postbox/middleware";
import { describe, expect, it } from "vitest";
import { z } from "zod";

const Placed = defineEvent({ type: "shop.Placed", schema: z.object({ n: z.number() }), key: ({ n }) => `k${n}` });
const Invoiced = defineEvent({ type: "shop.Invoiced", schema: z.object({ n: z.number() }) });

/** A broker with two queues, a store, and the log of all telemetry. */
function world() {
  const broker = memoryBroker();
  broker.bind("billing", [Placed]);
  broker.bind("mail", [Invoiced]);
  const store = memoryStore();
  const log = telemetryLog();
  const publisher = createPublisher(broker.sender(), { source: "/test" });
  const outbox = createOutbox(store, { source: "/billing" });
  const create = () => createRouter("billing", { telemetry: log.telemetry, backoff: constant(1), maxAttempts: 2 });
  return { broker, store, log, publisher, outbox, create };
}

/** Runs the router until `count` messages are acked or parked. */
async function settle(
  router: { start(r: never): void; stop(): Promise<void> },
  w: ReturnType<typeof world>,
  count = 1,
) {
  router.start(w.broker.receiver() as never);
  let settled = 0;
  await w.log.until(({ name }) => /^delivery\.(acked|parked)$/.test(name) && ++settled === count, `${count} settled`);
  await router.stop();
}

/** Takes all messages out of a queue. */
async function drain(w: ReturnType<typeof world>, queue: string): Promise<Message[]> {
  const got: Message[] = [];
  const controller = new AbortController();
  const wanted = w.broker.depth(queue);
  if (wanted === 0) return [];
  const deliver = async (delivery: { message: Message; ack(): Promise<void> }) => {
    got.push(delivery.message);
    await delivery.ack();
    if (got.length === wanted) controller.abort();
  };
  await w.broker.receiver({ queue }).receive({ consumer: "drain", events: [], deliver }, controller.signal);
  return got;
}

describe("transaction and inbox", () => {
  it("commit the handler's effects once, however often the message comes", async () => {
    const w = world();
    const effects: string[] = [];
    const router = w
      .create()
      .use(transaction(w.store))
      .use(inbox(w.store))
      .on(Placed, async (_, { tx, message }) => {
        expect(currentTransaction(w.store)).toBe(tx);
        tx.defer(() => effects.push(message.id));
      });
    for (const id of ["a", "b", "a", "a"]) await w.publisher.publish(Placed, { n: 1 }, { id });
    await settle(router, w, 4);
    expect(effects).toEqual(["a", "b"]);
    expect(w.log.of("delivery.skipped").map(({ id }) => id)).toEqual(["a", "a"]);
    expect(() => currentTransaction(w.store)).toThrow(expect.objectContaining({ code: "transaction-missing" }));
  });

  it("roll back together, so that a failed message is handled when it comes again", async () => {
    const w = world();
    const effects: number[] = [];
    const router = w
      .create()
      .use(transaction(w.store))
      .use(inbox(w.store))
      .on(Placed, async (_, { tx, attempt }) => {
        tx.defer(() => effects.push(attempt));
        if (attempt === 1) throw new Error("once");
      });
    await w.publisher.publish(Placed, { n: 1 });
    // Acked once when the inbox takes it over from the broker, and once when it is handled from the box.
    await settle(router, w, 2);
    expect(effects).toEqual([2]);
    expect(w.log.of("delivery.skipped")).toEqual([]);
  });

  it("each consumer handles a message for itself", async () => {
    const w = world();
    w.broker.bind("audit", [Placed]);
    const effects: string[] = [];
    await w.publisher.publish(Placed, { n: 1 });
    for (const consumer of ["billing", "audit"]) {
      const log = telemetryLog();
      const router = createRouter(consumer, { telemetry: log.telemetry })
        .use(transaction(w.store))
        .use(inbox(w.store))
        .on(Placed, (_, { tx }) => tx.defer(() => effects.push(consumer)));
      router.start(w.broker.receiver());
      await log.until("delivery.acked");
      await router.stop();
    }
    expect(effects).toEqual(["billing", "audit"]);
  });

  it("ack only after the commit", async () => {
    const w = world();
    const order: string[] = [];
    const router = w
      .create()
      .use(transaction(w.store))
      .on(Placed, (_, { tx }) => tx.defer(() => order.push("commit")));
    await w.publisher.publish(Placed, { n: 1 });
    const receiver = w.broker.receiver();
    router.start({
      name: "tapped",
      receive: (subscription, signal) => {
        const deliver: typeof subscription.deliver = (delivery) =>
          subscription.deliver({
            ...delivery,
            ack: async () => {
              order.push("ack");
              await delivery.ack();
            },
          });
        return receiver.receive({ ...subscription, deliver }, signal);
      },
    });
    await w.log.until("delivery.acked");
    await router.stop();
    expect(order).toEqual(["commit", "ack"]);
  });
});

it("transaction opens one of the isolation it was made with", async () => {
  const w = world();
  const asked: unknown[] = [];
  const store: typeof w.store = {
    ...w.store,
    transaction: (work, options) => {
      asked.push(options);
      return w.store.transaction(work, options);
    },
  };
  const router = w
    .create()
    .use(transaction(store, { isolation: "serializable" }))
    .on(Placed, () => {});
  await w.publisher.publish(Placed, { n: 1 });
  await settle(router, w);
  expect(asked).toMatchObject([{ isolation: "serializable" }]);
});

describe("outputs", () => {
  it("through the outbox commit with the handler, or not at all", async () => {
    const w = world();
    const router = w
      .create()
      .use(correlation())
      .use(transaction(w.store))
      .use(inbox(w.store))
      .use(outboxOutputs(w.outbox))
      .on(Placed, async ({ n }, { tx, attempt }) => {
        await w.outbox.in(tx).publish(Invoiced, { n: 100 + n }, { id: `direct-${attempt}` });
        if (attempt === 1) throw new Error("once");
        return [Invoiced.message({ n }, { id: `returned-${attempt}` })];
      });
    await w.publisher.publish(Placed, { n: 1 }, { id: "in", extensions: { correlationid: "request" } });
    await settle(router, w, 2);
    const stored = w.store.contents("outbox").pending;
    expect(stored.map(({ id, source }) => [id, source]).sort()).toEqual([
      ["direct-2", "/billing"],
      ["returned-2", "/billing"],
    ]);
    for (const { extensions } of stored) {
      expect(extensions).toEqual({ correlationid: "request", causationid: "in" });
    }
  });

  it("straight to the broker leave after the commit, and a failure to publish is a failure to handle", async () => {
    const w = world();
    const order: string[] = [];
    let fails = 1;
    const publisher = createPublisher(w.broker.sender(), {
      source: "/billing",
      middleware: [
        async (messages, next) => {
          order.push("publish");
          if (fails-- > 0) throw new Error("broker said no");
          await next(messages);
        },
      ],
    });
    const router = w
      .create()
      .use(publishOutputs(publisher))
      .use(correlation())
      .use(transaction(w.store))
      .on(Placed, async ({ n }, { tx }) => {
        tx.defer(() => order.push("commit"));
        return [Invoiced.message({ n })];
      });
    await w.publisher.publish(Placed, { n: 1 }, { id: "in" });
    await settle(router, w);
    expect(order).toEqual(["commit", "publish", "commit", "publish"]);
    const [out] = await drain(w, "mail");
    expect(out?.extensions).toEqual({ correlationid: "in", causationid: "in" });
  });

  it("with ack: forward, the next is handled while the broker confirms, and acked when it has", async () => {
    const w = world();
    const confirm = gate();
    const publisher = createPublisher(w.broker.sender(), {
      source: "/billing",
      middleware: [
        async (messages, next) => {
          await confirm.opened;
          await next(messages);
        },
      ],
    });
    const options = { ack: "forward", concurrency: 1, telemetry: w.log.telemetry } as const;
    const router = createRouter("billing", options)
      .use(publishOutputs(publisher))
      .on(Placed, ({ n }) => [Invoiced.message({ n })]);
    await w.publisher.publishAll([Placed.message({ n: 1 }), Placed.message({ n: 2 })]);
    router.start(w.broker.receiver());
    await w.log.until("delivery.handled", 2);
    expect(w.log.of("delivery.acked")).toEqual([]);
    confirm.open();
    await w.log.until("delivery.acked", 2);
    await router.stop();
    expect(w.broker.depth("mail")).toBe(2);
  });

  it("with ack: forward, what could not be published is handled again", async () => {
    const w = world();
    let fails = 1;
    const publisher = createPublisher(w.broker.sender(), {
      source: "/billing",
      middleware: [(messages, next) => (fails-- > 0 ? Promise.reject(new Error("no")) : next(messages))],
    });
    const router = createRouter("billing", { ack: "forward", telemetry: w.log.telemetry, backoff: constant(1) })
      .use(publishOutputs(publisher))
      .on(Placed, ({ n }) => [Invoiced.message({ n })]);
    await w.publisher.publish(Placed, { n: 1 });
    await settle(router, w);
    expect(w.log.of("delivery.retried")).toHaveLength(1);
    expect(w.broker.depth("mail")).toBe(1);
  });

  it("with ack: forward, a running middleware keeps its place, and a failed publish parks its message", async () => {
    const w = world();
    const outside = gate();
    const publisher = createPublisher(w.broker.sender(), {
      source: "/billing",
      middleware: [() => Promise.reject(new Error("broker said no"))],
    });
    const options = { ack: "forward", concurrency: 1, maxAttempts: 1, telemetry: w.log.telemetry } as const;
    const router = createRouter("billing", options)
      .use(
        defineMiddleware({
          name: "slow",
          async run(_, next) {
            const outputs = await next();
            await outside.opened;
            return outputs;
          },
        }),
      )
      .use(publishOutputs(publisher))
      .on(Placed, ({ n }) => [Invoiced.message({ n })]);
    await w.publisher.publishAll([Placed.message({ n: 1 }), Placed.message({ n: 2 })]);
    router.start(w.broker.receiver());
    await w.log.until("delivery.received");
    await new Promise(setImmediate);
    await new Promise(setImmediate);
    expect(w.log.of("delivery.received")).toHaveLength(1);
    outside.open();
    await w.log.until("delivery.parked", 2);
    await router.stop();
  });

  it("that a middleware adds where nobody publishes them park the message", async () => {
    const w = world();
    const adding = defineMiddleware({
      name: "adding",
      run: async (_, next) => [...(await next()), Invoiced.message({ n: 1 })],
    });
    const router = w
      .create()
      .use(adding)
      .on(Placed, () => {});
    await w.publisher.publish(Placed, { n: 1 });
    await settle(router, w);
    expect(w.broker.parked("billing")[0]?.reason).toMatchObject({ code: "outputs-unpublished" });
  });

  it("that nobody publishes roll the transaction back and park the message", async () => {
    const w = world();
    const effects: string[] = [];
    const router = w
      .create()
      .use(transaction(w.store))
      .on(Placed, ((_: unknown, { tx }: { tx: { defer(effect: () => void): void } }) => {
        tx.defer(() => effects.push("committed"));
        return [Invoiced.message({ n: 1 })];
      }) as never);
    await w.publisher.publish(Placed, { n: 1 });
    await settle(router, w);
    expect(effects).toEqual([]);
    expect(w.broker.parked("billing")[0]?.reason).toMatchObject({ code: "outputs-unpublished" });
  });
});

describe("retry", () => {
  it("tries again in place, each time in a new transaction", async () => {
    const w = world();
    const effects: number[] = [];
    let tries = 0;
    const router = w
      .create()
      .use(retry({ maxAttempts: 3, backoff: constant(0) }))
      .use(transaction(w.store))
      .use(inbox(w.store))
      .on(Placed, async (_, { tx }) => {
        const attempt = ++tries;
        tx.defer(() => effects.push(attempt));
        if (attempt < 3) throw new Error("again");
      });
    await w.publisher.publish(Placed, { n: 1 });
    await settle(router, w);
    expect(effects).toEqual([3]);
    expect(w.log.of("delivery.retried")).toEqual([]);
  });
});

describe("recover", () => {
  it("turns a failure into outputs, nothing, or another error", async () => {
    const w = world();
    const router = w
      .create()
      .use(publishOutputs(w.publisher))
      .use(
        recover((error, { message }) => {
          if (message.key === "k1") return [Invoiced.message({ n: -1 })];
          if (message.key === "k3") throw new PermanentError(`hopeless: ${(error as Error).message}`);
        }),
      )
      .use(transaction(w.store))
      .on(Placed, () => {
        throw new Error("broken");
      });
    await w.publisher.publishAll([1, 2, 3].map((n) => Placed.message({ n })));
    await settle(router, w, 3);
    expect(w.broker.depth("mail")).toBe(1);
    expect(w.broker.parked("billing").map(({ reason }) => reason.message)).toEqual(["[permanent] hopeless: broken"]);
  });
});

describe("what a handler can never do right", () => {
  it("is parked at once: outputs that are invalid, wrong use", async () => {
    const w = world();
    const router = w
      .create()
      .use(transaction(w.store))
      .use(outboxOutputs(w.outbox))
      .on(Placed, async ({ n }) => {
        if (n === 1) return [Invoiced.message({ n: "x" } as never)];
        await w.store.transaction(async () => {});
      });
    await w.publisher.publishAll([1, 2].map((n) => Placed.message({ n })));
    await settle(router, w, 2);
    const reasons = w.broker
      .parked("billing")
      .map(({ reason, attempt }) => [(reason as { code?: string }).code, attempt]);
    expect(reasons.sort()).toEqual([
      ["data-invalid", 1],
      ["transaction-nested", 1],
    ]);
  });

  it("recovering into messages that nobody publishes keeps the error it recovered from", async () => {
    const w = world();
    const middleware = recover(() => [Invoiced.message({ n: 1 })]);
    const router = w
      .create()
      .use(middleware as never as ReturnType<typeof correlation>)
      .on(Placed, () => {
        throw new Error("the first cause");
      });
    await w.publisher.publish(Placed, { n: 1 });
    await settle(router, w);
    expect(w.broker.parked("billing")[0]?.reason).toMatchObject({
      code: "outputs-unpublished",
      cause: { message: "the first cause" },
    });
  });
});

describe("wrong order at run time", () => {
  const w = world();
  const other = memoryStore();
  const chain = (...middleware: unknown[]) => {
    const manual = middleware[0] === "manual";
    const router = manual ? createRouter("billing", { ack: "manual" }) : createRouter("billing");
    const untyped = router as unknown as { use(m: unknown): unknown };
    for (const next of manual ? middleware.slice(1) : middleware) untyped.use(next);
  };

  it.each<[string, unknown[]]>([
    ["inbox() needs 'tx' in the context: .use(transaction(store)) before it", [inbox(w.store)]],
    ["outboxOutputs() needs 'tx' in the context: .use(transaction(store)) before it", [outboxOutputs(w.outbox)]],
    ["retry() cannot stand inside transaction(store): .use(retry()) before it", [transaction(w.store), retry()]],
    ["timeout() cannot stand inside transaction(store): .use(timeout()) before it", [transaction(w.store), timeout(1)]],
    ["recover() cannot stand inside transaction(store)", [transaction(w.store), recover(() => {})]],
    ["deadline() cannot stand inside transaction(store)", [transaction(w.store), deadline()]],
    ["publishOutputs() cannot stand inside transaction(store)", [transaction(w.store), publishOutputs(w.publisher)]],
    ["transaction() is there already: once is enough, remove this one", [transaction(w.store), transaction(w.store)]],
    ["inbox() works with another store's 'tx' than the one in this context", [transaction(w.store), inbox(other)]],
    [
      'transaction() cannot stand behind ack: "manual", whose handler could ack before the commit: ' +
        "choose another ack strategy",
      ["manual", transaction(w.store)],
    ],
    [
      "outboxOutputs() works with another store's 'tx' than the one in this context",
      [transaction(other), outboxOutputs(w.outbox)],
    ],
    [
      "inbox() cannot stand inside publishOutputs(publisher), which would lose messages in a crash after the " +
        "commit: use outboxOutputs(outbox) instead",
      [publishOutputs(w.publisher), transaction(w.store), inbox(w.store)],
    ],
  ])("%s", (sentence, middleware) => {
    expect(() => chain(...middleware)).toThrow(`[middleware-order] ${sentence}`);
  });

  it("counts the innermost of two that add the same", () => {
    const adds = (name: string, store: object) => ({
      ...defineMiddleware({ name, run: (_, next) => next() }),
      adds: ["tx"],
      store,
    });
    expect(() => chain(adds("outer", other), adds("inner", w.store), inbox(w.store))).not.toThrow();
    expect(() => chain(adds("outer", w.store), adds("inner", other), inbox(w.store))).toThrow("another store's 'tx'");
  });

  it("forward needs somebody to publish", () => {
    const router = createRouter("billing", { ack: "forward" }) as unknown as { on(...args: unknown[]): void };
    expect(() => router.on(Placed, () => {})).toThrow('ack: "forward" needs a publisher');
  });

  it("refuses bad options", () => {
    expect(() => transaction(w.store, { isolation: "chaos" as never })).toThrow("transaction: option 'isolation'");
    expect(() => retry({ maxAttempt: 1 } as never)).toThrow("did you mean 'maxAttempts'?");
    expect(() => timeout(0)).toThrow("above 0");
    expect(() => deadline({ onExpired: "x" as never })).toThrow("deadline: option 'onExpired'");
  });
});
