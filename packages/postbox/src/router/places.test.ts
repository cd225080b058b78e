import { gate, manualRuntime, telemetryLog } from "@postbox/testkit";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { defineEvent } from "../event/define-event.js";
import { memoryBroker } from "../exports/memory.js";
import { createMessaging } from "../messaging/create-messaging.js";
import { createPublisher } from "../publisher/create-publisher.js";

const Placed = defineEvent({ type: "shop.Placed", schema: z.object({ n: z.number() }), key: ({ n }) => `key-${n}` });

function world(concurrency: number) {
  const log = telemetryLog();
  const runtime = manualRuntime();
  const broker = memoryBroker();
  const release = gate();
  const messaging = createMessaging({
    service: "orders",
    sender: broker.sender(),
    receiver: broker.receiver(),
    telemetry: log.telemetry,
    routerOptions: { concurrency, slowAfterMs: 1000, runtime },
  });
  const router = messaging.consumer("billing").on(Placed, ({ n }) => (n < 0 ? undefined : release.opened));
  const publisher = createPublisher(broker.sender(), { source: "/test" });
  const publish = (n: number) => publisher.publish(Placed, { n }, { id: `m${n}` });
  return { log, runtime, messaging, router, release, publish };
}

describe("a handler that does not end", () => {
  it("is reported once, with what to do, and is a problem of health for as long as it runs", async () => {
    const { log, runtime, messaging, router, release, publish } = world(2);
    await messaging.start();
    await publish(1);
    await log.until("delivery.received");
    await runtime.advance(900);
    expect(router.slowHandlers).toEqual([]);
    await runtime.advance(2000);
    expect(log.of("delivery.slow")).toMatchObject([
      { consumer: "billing", id: "m1", type: "shop.Placed", key: "key-1", error: { code: "handler-slow" } },
    ]);
    expect(log.of("delivery.slow")[0]?.error.message).toContain("1 of the 2 messages");
    expect(await messaging.health()).toMatchObject({
      healthy: true,
      problems: [
        { code: "handlers-slow", severity: "warning", consumer: "billing", count: 1, concurrency: 2, id: "m1" },
      ],
    });
    release.open();
    await log.until("delivery.acked");
    expect(router.slowHandlers).toEqual([]);
    expect((await messaging.health()).problems).toEqual([]);
    await messaging.close();
  });

  it("is an error of health where no place is left", async () => {
    const { log, runtime, messaging, release, publish } = world(2);
    await messaging.start();
    for (const n of [1, 2]) await publish(n);
    await log.until("delivery.received", 2);
    await runtime.advance(2000);
    expect(log.of("delivery.slow").map(({ id }) => id)).toEqual(["m1", "m2"]);
    const { healthy, problems } = await messaging.health();
    expect(healthy).toBe(false);
    expect(problems).toMatchObject([{ code: "handlers-slow", severity: "error", count: 2, id: "m1" }]);
    release.open();
    await messaging.close();
  });

  it("leaves its place to one that begins anew", async () => {
    const { log, runtime, messaging, router, release, publish } = world(1);
    await messaging.start();
    await publish(-1);
    await log.until("delivery.acked");
    await runtime.advance(5000);
    await publish(2);
    await log.until("delivery.received", 2);
    expect(router.slowHandlers).toEqual([]);
    await runtime.advance(2000);
    expect(router.slowHandlers).toMatchObject([{ id: "m2", type: "shop.Placed" }]);
    release.open();
    await messaging.close();
  });
});
