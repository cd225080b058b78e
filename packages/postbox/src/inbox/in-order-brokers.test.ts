import { telemetryLog } from "@postbox/testkit";
import { constant, createRouter, defineEvent, durableInbox, inbox, inboxOf, transaction } from "postbox";
import { type MemoryLog, memoryLog, memoryStore } from "postbox/memory";
import { describe, expect, it, onTestFinished } from "vitest";
import { runtimeWith } from "../internal/runtime.js";
import { createMessage } from "../message/message.js";
import type { Delivery } from "../transport.js";
import { checkInbox } from "./inbox-options.js";
import { Intake } from "./intake.js";

const Placed = defineEvent({
  type: "shop.Placed",
  schema: { "~standard": { version: 1, vendor: "test", validate: (value: unknown) => ({ value }) } },
});
const messageOf = (id: string, type = "shop.Placed") =>
  createMessage({
    id,
    source: "/test",
    type,
    topic: "shop",
    data: Buffer.from("{}"),
    datacontenttype: "application/json",
  });
const send = (log: MemoryLog, ...messages: ReturnType<typeof messageOf>[]) =>
  log.sender().send(messages, () => {}, new AbortController().signal);
const timing = { pollIntervalMs: 10, leaseMs: 1_000 };

describe.each(["inbox", "durableInbox"] as const)("behind %s, on a broker that cannot park", (kind) => {
  function consuming(options: {
    readonly onUnknownType?: "park";
    readonly id?: () => undefined;
    readonly waitMs?: number;
  }) {
    const [broker, store, log] = [memoryLog({ partitions: 1 }), memoryStore(), telemetryLog()];
    const { onUnknownType, id, waitMs = 900_000 } = options;
    const own = { ...timing, ...(id && { id }) };
    const router = createRouter("billing", {
      telemetry: log.telemetry,
      backoff: constant(5),
      unknownWaitMs: waitMs,
      ...(onUnknownType && { onUnknownType }),
    })
      .use(transaction(store))
      .use(kind === "inbox" ? inbox(store, own) : durableInbox(store, own))
      .on(Placed, () => {});
    onTestFinished(() => router.stop());
    const start = () => router.start(broker.receiver());
    return { broker, log, start, box: () => store.contents(inboxOf("billing")) };
  }

  it("a message without an id is parked in the box, known by its place, and holds up nothing", async () => {
    const { broker, log, start, box } = consuming({ id: () => undefined });
    await send(broker, messageOf("m1"), messageOf("m2"));
    await start();
    await log.until("delivery.parked", 2);
    await expect.poll(() => broker.lag("billing", "shop")).toBe(0);
    expect(box().parked.map(({ message }) => message.id)).toEqual(["m1", "m2"]);
    expect(box().parked[0]?.error).toContain("has no id for the inbox");
    expect(log.of("router.failed")).toEqual([]);
  });

  it('a type without a handler waits in the box with onUnknownType: "park", and is parked there', async () => {
    const { broker, log, start, box } = consuming({ onUnknownType: "park", waitMs: 50 });
    await send(broker, messageOf("m1", "shop.Unknown"), messageOf("m2"));
    await start();
    await log.until("delivery.handled");
    await expect.poll(() => broker.lag("billing", "shop")).toBe(0);
    await log.until("delivery.parked");
    await expect.poll(() => box().parked.map(({ message }) => message.id)).toEqual(["m1"]);
    expect(log.of("router.failed")).toEqual([]);
  });
});

describe("an intake", () => {
  it("stores nothing of a stream that was taken back", async () => {
    const [log, stored] = [telemetryLog(), [] as string[]];
    const [revoked, end] = [new AbortController(), new AbortController()];
    const intake = new Intake({
      ...checkInbox("durableInbox", {}, 100),
      inbox: {
        async keep(arrivals) {
          stored.push(...arrivals.map(({ id }) => id));
          return arrivals.map(() => "new" as const);
        },
        setAside: () => Promise.reject(new Error("nothing fails")),
      },
      inOrder: true,
      brokerParks: false,
      onUnknownType: "ignore",
      kept: () => {},
      consumer: "billing",
      concurrency: 1,
      maxAttempts: 10,
      backoff: constant(1),
      telemetry: log.telemetry,
      runtime: runtimeWith(undefined),
    });
    const settled: string[] = [];
    const verb = (name: string, id: string) => async () => void settled.push(`${name} ${id}`);
    const deliveryOf = (id: string, signal?: AbortSignal): Delivery => ({
      message: messageOf(id),
      attempt: 1,
      ...(signal && { signal }),
      ack: verb("ack", id),
      retry: verb("retry", id),
      park: verb("park", id),
      release: verb("release", id),
    });
    for (const id of ["m1", "m2"]) await intake.take(deliveryOf(id, revoked.signal));
    await intake.take(deliveryOf("m3"));
    revoked.abort();
    const never = new AbortController().signal;
    const running = intake.run(never, end.signal, never);
    await log.until("delivery.stored");
    end.abort();
    await running;
    expect(stored).toEqual(["m3"]);
    expect(settled.sort()).toEqual(["ack m3", "release m1", "release m2"]);
    expect(log.of("delivery.revoked").map(({ id }) => id)).toEqual(["m1", "m2"]);
  });
});
