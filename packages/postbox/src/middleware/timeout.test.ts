import { gate, manualRuntime, telemetryLog } from "@postbox/testkit";
import {
  constant,
  createPublisher,
  createRouter,
  deadline,
  defineEvent,
  type RouterOptions,
  retry,
  timeout,
  transaction,
} from "postbox";
import { memoryBroker, memoryStore } from "postbox/memory";
import { describe, expect, it } from "vitest";
import { z } from "zod";

const Placed = defineEvent({ type: "shop.Placed", schema: z.object({ n: z.number() }), key: ({ n }) => `k${n % 2}` });

/** A broker with a queue, a router and a manual clock. */
function world(options: RouterOptions & { readonly ack?: "on-success" } = {}) {
  const runtime = manualRuntime();
  const broker = memoryBroker({ runtime });
  broker.bind("billing", [Placed]);
  const log = telemetryLog();
  const publisher = createPublisher(broker.sender(), { source: "/test", runtime });
  const publish = (...numbers: number[]) =>
    publisher.publishAll(numbers.map((n) => Placed.message({ n }, { id: `m${n}` })));
  const router = createRouter("billing", {
    telemetry: log.telemetry,
    backoff: constant(1),
    maxAttempts: 2,
    runtime,
    ...options,
  });
  const start = (running: { start(receiver: ReturnType<typeof broker.receiver>): void }) =>
    running.start(broker.receiver());
  return { runtime, broker, log, publisher, publish, router, start };
}

describe("timeout", () => {
  it("fails a handler that takes too long, and its transaction does not commit afterwards", async () => {
    const w = world();
    const effects: string[] = [];
    const late = gate();
    const store = memoryStore();
    const router = w.router
      .use(timeout(20))
      .use(transaction(store))
      .on(Placed, async (_, { tx, attempt, signal }) => {
        tx.defer(() => effects.push(`attempt ${attempt}`));
        if (attempt > 1) return;
        await late.opened;
        expect(signal.reason).toMatchObject({ code: "handler-timeout" });
      });
    await w.publish(1);
    w.start(router);
    await w.log.until("delivery.received");
    await w.runtime.advance(19);
    expect(w.log.of("delivery.retried")).toEqual([]);
    await w.runtime.advance(2);
    expect(w.log.of("delivery.retried")[0]?.error).toMatchObject({ code: "handler-timeout" });
    late.open();
    await w.log.until("delivery.acked");
    await router.stop();
    expect(effects).toEqual(["attempt 2"]);
  });
});

it.each([
  ["timeout", timeout(1000)],
  ["deadline", deadline()],
])("%s passes on what the handler is told from outside", async (_, middleware) => {
  const w = world({ shutdownTimeoutMs: 1 });
  const told = gate();
  const router = w.router.use(middleware as ReturnType<typeof timeout>).on(Placed, async (_data, { signal }) => {
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    expect(signal.reason).toMatchObject({ message: expect.stringContaining("stopped before this handler was done") });
    told.open();
  });
  const expirytime = new Date(w.runtime.now() + 1000).toISOString();
  await w.publisher.publish(Placed, { n: 1 }, { extensions: { expirytime } });
  w.start(router);
  await w.log.until("delivery.received");
  await w.runtime.advance(0);
  const stopped = router.stop();
  await w.runtime.advance(1);
  await stopped;
  await told.opened;
});

describe.each([
  ["timeout", timeout(20)],
  ["deadline", deadline()],
])("a handler that is deaf to its %s", (_, middleware) => {
  /** Handlers run until the test ends them by number. The first two messages time out after 20 ms. */
  async function run(options: RouterOptions & { readonly ack?: "on-success" }, ...numbers: number[]) {
    const w = world({ maxAttempts: 1, ...options });
    const started: number[] = [];
    const ends = new Map<number, () => void>();
    const router = w.router.use(middleware as ReturnType<typeof timeout>).on(Placed, ({ n }) => {
      started.push(n);
      return new Promise<void>((resolve) => ends.set(n, resolve));
    });
    const expirytime = new Date(w.runtime.now() + 20).toISOString();
    await w.publisher.publishAll(
      numbers.map((n) => Placed.message({ n }, { id: `m${n}`, extensions: n > 2 ? {} : { expirytime } })),
    );
    w.start(router);
    await w.log.until("delivery.received");
    await w.runtime.advance(20);
    return { ...w, router, started, end: (n: number) => ends.get(n)?.() };
  }

  it("keeps the next of its key waiting until it has ended, though its message is settled", async () => {
    const w = await run({}, 1, 2, 3, 5);
    expect(w.log.of("delivery.parked")).toMatchObject([{ id: "m1" }, { id: "m2" }]);
    expect(w.started).toEqual([1, 2]);
    for (const n of [1, 3, 5, 2]) {
      w.end(n);
      await w.runtime.advance(0);
    }
    expect(w.started).toEqual([1, 2, 3, 5]);
    await w.router.stop();
  });

  it("keeps its place among those that run at the same time", async () => {
    const w = await run({ concurrency: 2 }, 1, 2, 3, 4);
    expect(w.log.of("delivery.parked")).toHaveLength(2);
    expect(w.started).toEqual([1, 2]);
    for (const n of [2, 4, 1, 3]) {
      w.end(n);
      await w.runtime.advance(0);
    }
    expect(w.started).toEqual([1, 2, 4, 3]);
    await w.router.stop();
  });

  it("does not keep a stop waiting longer than its deadline", async () => {
    const w = await run({ shutdownTimeoutMs: 100 }, 1);
    let over = false;
    const stopped = w.router.stop().then(() => {
      over = true;
    });
    await w.runtime.advance(99);
    expect(over).toBe(false);
    await w.runtime.advance(1);
    await stopped;
  });
});

it("a retry around it waits for the end of the try before", async () => {
  const w = world();
  const started: number[] = [];
  const first = gate();
  const router = w.router
    .use(retry({ maxAttempts: 2, backoff: constant(1) }))
    .use(timeout(20))
    .on(Placed, () => (started.push(w.runtime.monotonic()) === 1 ? first.opened : undefined));
  await w.publish(1);
  w.start(router);
  await w.log.until("delivery.received");
  await w.runtime.advance(50);
  expect(started).toEqual([0]);
  first.open();
  await w.log.until("delivery.acked");
  expect(started).toEqual([0, 50]);
  await router.stop();
});

it("does not warn of a leak when many handlers have one", async () => {
  const warnings: Error[] = [];
  const warned = (warning: Error) => warnings.push(warning);
  process.on("warning", warned);
  const w = world({ concurrency: 20 });
  const hold = gate();
  const Unkeyed = defineEvent({ type: Placed.type, schema: z.object({ n: z.number() }) });
  const router = w.router.use(timeout(1000)).on(Unkeyed, () => hold.opened);
  await w.publisher.publishAll(Array.from({ length: 20 }, (_, n) => Unkeyed.message({ n })));
  w.start(router);
  await w.log.until("delivery.received", 20);
  await w.runtime.advance(0);
  hold.open();
  await w.log.until("delivery.acked", 20);
  await router.stop();
  process.off("warning", warned);
  expect(warnings).toEqual([]);
});

describe("deadline", () => {
  it.each(["park", "drop"] as const)("does not call the handler of what has expired: %s", async (expired) => {
    const w = world();
    const router = w.router.use(deadline({ onExpired: expired })).on(Placed, () => {
      throw new Error("was called");
    });
    // A message expires at the very millisecond of its expirytime.
    const expirytime = new Date(w.runtime.now()).toISOString();
    await w.publisher.publish(Placed, { n: 1 }, { extensions: { expirytime } });
    w.start(router);
    await w.log.until(expired === "park" ? "delivery.parked" : "delivery.acked");
    await router.stop();
    expect(w.broker.parked("billing").map(({ reason }) => reason)).toMatchObject(
      expired === "park" ? [{ code: "message-expired" }] : [],
    );
  });

  it("lets pass what has no expiry or a later one, and parks what expires while it is handled", async () => {
    const w = world();
    const reasons: unknown[] = [];
    const router = w.router.use(deadline()).on(Placed, async (_, { signal, message }) => {
      if (message.id !== "soon") return;
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      reasons.push(signal.reason);
    });
    const at = (ms: number) => ({ expirytime: new Date(w.runtime.now() + ms).toISOString() });
    await w.publisher.publish(Placed, { n: 1 }, { id: "without" });
    await w.publisher.publish(Placed, { n: 2 }, { id: "later", extensions: at(2) });
    await w.publisher.publish(Placed, { n: 3 }, { id: "soon", extensions: at(1) });
    w.start(router);
    await w.log.until("delivery.acked", 2);
    await w.runtime.advance(1);
    await w.log.until("delivery.parked");
    await router.stop();
    expect(w.broker.parked("billing")).toMatchObject([
      { message: { id: "soon" }, reason: { code: "message-expired" } },
    ]);
    expect(reasons).toMatchObject([{ code: "message-expired" }]);
  });
});
