import { manualRuntime, recordingSender, telemetryLog } from "@postbox/testkit";
import { createOutbox, createRelay, defineEvent, inProcessNotifier, type Notifier, type Store } from "postbox";
import { memoryDatabase, memoryStore } from "postbox/memory";
import type { NotificationListener } from "postbox/store";
import { describe, expect, it } from "vitest";
import { z } from "zod";

const Placed = defineEvent({ type: "shop.Placed", schema: z.object({ n: z.number() }) });

/** A relay that has found nothing and sleeps. Its clock stands still, so only a notification can wake it. */
async function sleepingRelay(store: Store, notifier?: Notifier | false) {
  const log = telemetryLog();
  const runtime = manualRuntime();
  const sender = recordingSender();
  const given = notifier === undefined ? {} : { notifier };
  const relay = createRelay(store, sender, { ...given, runtime, telemetry: log.telemetry });
  relay.start();
  while (log.of("relay.drained").length === 0) await runtime.advance(1);
  // Lets the poll that starts with listening end.
  await runtime.advance(20);
  return { relay, log, runtime, sender };
}

describe("a notifier", () => {
  it("wakes the relay of the same process and store by default", async () => {
    const store = memoryStore();
    const { relay, log, sender } = await sleepingRelay(store);
    const outbox = createOutbox(store, { source: "/orders" });
    const { id } = await store.transaction((tx) => outbox.in(tx).publish(Placed, { n: 1 }));
    await log.until("message.sent");
    expect(sender.ids()).toEqual([id]);
    await relay.stop();
  });

  it("wakes relays of other stores on the same database that share it", async () => {
    const database = memoryDatabase();
    const notifier = inProcessNotifier();
    const { relay, log, sender } = await sleepingRelay(memoryStore({ database }), notifier);
    const store = memoryStore({ database });
    const outbox = createOutbox(store, { source: "/orders", notifier });
    const { id } = await store.transaction((tx) => outbox.in(tx).publish(Placed, { n: 1 }));
    await log.until("message.sent");
    expect(sender.ids()).toEqual([id]);
    await relay.stop();
  });

  it.each([
    { title: "the outbox", outboxHas: false as const, relayHas: undefined },
    { title: "the relay", outboxHas: undefined, relayHas: false as const },
  ])("wakes no relay if it is turned off for $title", async ({ outboxHas, relayHas }) => {
    const store = memoryStore();
    const { relay, log, runtime, sender } = await sleepingRelay(store, relayHas);
    const outbox = createOutbox(store, { source: "/orders", ...(outboxHas === false && { notifier: outboxHas }) });
    await store.transaction((tx) => outbox.in(tx).publish(Placed, { n: 1 }));
    await runtime.advance(0);
    expect(sender.ids()).toEqual([]);
    await runtime.advance(500);
    await log.until("message.sent");
    await relay.stop();
  });

  const no = () => {
    throw new Error("no way");
  };
  it.each([
    { how: "rejects", broken: { isHeard: () => true, notify: async () => no() } },
    { how: "throws", broken: { isHeard: () => true, notify: no } },
    { how: "throws when it is asked", broken: { isHeard: no } },
  ])("that $how does not fail the publish, and is reported", async ({ broken }) => {
    const log = telemetryLog();
    const store = memoryStore();
    const notifier: Notifier = { ...inProcessNotifier(), ...broken };
    const outbox = createOutbox(store, { source: "/orders", notifier, telemetry: log.telemetry });
    await store.transaction((tx) => outbox.in(tx).publish(Placed, { n: 1 }));
    expect(await log.until("notifier.failed")).toMatchObject({
      box: "outbox",
      error: { message: "[store-failed] no way" },
    });
  });

  it("is validated", () => {
    const store = memoryStore();
    const why = "option 'notifier' must be a Notifier, such as postgresNotifier({ pool }), or false";
    expect(() => createOutbox(store, { source: "/orders", notifier: true as never })).toThrow(why);
    expect(() => createRelay(store, recordingSender(), { notifier: {} as never })).toThrow(why);
  });
});

describe("a relay whose notifier fails", () => {
  /** A notifier that a test starts and breaks. */
  function breakable() {
    const sessions: { readonly listener: NotificationListener; fail(error: Error): void }[] = [];
    const listen = (_: string, listener: NotificationListener, signal: AbortSignal) =>
      new Promise<void>((resolve, fail) => {
        sessions.push({ listener, fail });
        signal.addEventListener("abort", () => resolve(), { once: true });
      });
    return { store: memoryStore(), notifier: { name: "breakable", notify: async () => {}, listen }, sessions };
  }

  it("reports it, listens again after growing delays, and polls as soon as it listens", async () => {
    const { store, notifier, sessions } = breakable();
    const { relay, log, runtime, sender } = await sleepingRelay(store, notifier);
    for (const pause of [200, 400, 800]) {
      sessions.at(-1)?.fail(new Error("cut"));
      const count = sessions.length;
      const failed = await log.until("relay.listen-failed", count);
      expect(failed.error.message).toBe("[store-failed] cut");
      expect(failed.retryInMs).toBeGreaterThanOrEqual(pause / 2);
      expect(failed.retryInMs).toBeLessThanOrEqual(pause);
      await runtime.advance(failed.retryInMs - 1);
      expect(sessions).toHaveLength(count);
      await runtime.advance(1);
      expect(sessions).toHaveLength(count + 1);
    }
    await store.transaction((tx) => createOutbox(store, { source: "/o" }).in(tx).publish(Placed, { n: 1 }));
    sessions.at(-1)?.listener.listening();
    await log.until("message.sent");
    expect(sender.ids()).toHaveLength(1);
    expect(log.of("relay.listening")).toHaveLength(1);
    sessions.at(-1)?.fail(new Error("cut again"));
    expect((await log.until("relay.listen-failed", 4)).retryInMs).toBeLessThanOrEqual(200);
    await relay.stop();
  });

  it("listens again after a delay if listening ends by itself", async () => {
    const notifier = { name: "short", notify: async () => {}, listen: async () => {} };
    const { relay, log, runtime } = await sleepingRelay(memoryStore(), notifier);
    const [first] = log.of("relay.listen-failed");
    expect(first?.error.message).toBe("[store-failed] the notifier short stopped listening by itself");
    const before = log.of("relay.listen-failed").length;
    await runtime.advance(60_000);
    expect(log.of("relay.listen-failed").length).toBeLessThan(before + 10);
    await relay.stop();
  });

  it("gives its lanes back and stops even if a notifier never stops listening", async () => {
    const deaf = { name: "deaf", notify: async () => {}, listen: () => new Promise<void>(() => {}) };
    const { relay, log, runtime } = await sleepingRelay(memoryStore(), deaf);
    const stopped = relay.stop();
    expect(await log.until("relay.released")).toMatchObject({ lanes: 64 });
    await runtime.advance(4_000);
    await stopped;
  });

  it("stops while it waits to listen again", async () => {
    const { store, notifier, sessions } = breakable();
    const { relay, log } = await sleepingRelay(store, notifier);
    sessions[0]?.fail(new Error("cut"));
    await log.until("relay.listen-failed");
    await relay.stop();
    expect(sessions).toHaveLength(1);
  });
});
