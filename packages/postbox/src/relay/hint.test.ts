import { manualRuntime, recordingSender, telemetryLog } from "@postbox/testkit";
import { createOutbox, createRelay, defineEvent, type HintListener, type Store } from "postbox";
import { memoryStore } from "postbox/memory";
import { describe, expect, it } from "vitest";
import { z } from "zod";

const Placed = defineEvent({ type: "shop.Placed", schema: z.object({ n: z.number() }) });

/** A relay that runs, has found nothing and sleeps: its time stands still, so nothing but a hint wakes it. */
async function sleepingRelay(store: Store, hint: boolean) {
  const log = telemetryLog();
  const runtime = manualRuntime();
  const sender = recordingSender();
  const relay = createRelay(store, sender, { hint, runtime, telemetry: log.telemetry });
  relay.start();
  while (log.of("relay.drained").length === 0) await runtime.advance(1);
  // A look that a hint at the start had asked for is over.
  await runtime.advance(20);
  return { relay, log, runtime, sender };
}

describe("a hint", () => {
  it("makes a relay look at once", async () => {
    const store = memoryStore();
    const { relay, log, sender } = await sleepingRelay(store, true);
    const outbox = createOutbox(store, { source: "/orders", hint: true });
    const { id } = await store.transaction((tx) => outbox.in(tx).publish(Placed, { n: 1 }));
    await log.until("message.sent");
    expect(sender.ids()).toEqual([id]);
    await relay.stop();
  });

  it.each([
    { outboxHints: true, relayHints: false },
    { outboxHints: false, relayHints: true },
  ])("is neither sent nor heard unless asked for: $outboxHints, $relayHints", async ({ outboxHints, relayHints }) => {
    const store = memoryStore();
    const { relay, log, runtime, sender } = await sleepingRelay(store, relayHints);
    const outbox = createOutbox(store, { source: "/orders", hint: outboxHints });
    await store.transaction((tx) => outbox.in(tx).publish(Placed, { n: 1 }));
    await runtime.advance(0);
    expect(sender.ids()).toEqual([]);
    await runtime.advance(500);
    await log.until("message.sent");
    await relay.stop();
  });

  it("that cannot be sent fails no publish, and is told", async () => {
    const log = telemetryLog();
    const store = memoryStore();
    const broken = {
      ...store,
      hints: { sender: (_: string, failed: (error: unknown) => void) => ({ send: () => failed(new Error("no way")) }) },
    } as unknown as Store;
    const outbox = createOutbox(broken, { source: "/orders", hint: true, telemetry: log.telemetry });
    await broken.transaction((tx) => outbox.in(tx).publish(Placed, { n: 1 }));
    expect(log.of("hint.failed")).toMatchObject([{ box: "outbox", error: { message: "[store-failed] no way" } }]);
  });

  it("needs a store that has them", () => {
    const { hints: _, ...store } = memoryStore();
    const why = "[option-invalid]";
    expect(() => createOutbox(store, { source: "/orders", hint: true })).toThrow(`${why} createOutbox: 'hint' needs`);
    expect(() => createRelay(store, recordingSender(), { hint: true })).toThrow(`${why} createRelay: 'hint' needs`);
    expect(() => createRelay(store, recordingSender(), { hint: 1 as never })).toThrow("must be true or false");
    createRelay(store, recordingSender(), { hint: false });
  });
});

describe("a relay that has gone deaf", () => {
  /** A store whose listening a test begins and breaks. */
  function breakableStore() {
    const store = memoryStore();
    const sessions: { readonly listener: HintListener; fail(error: Error): void }[] = [];
    const listen = (_: string, listener: HintListener, signal: AbortSignal) =>
      new Promise<void>((resolve, fail) => {
        sessions.push({ listener, fail });
        signal.addEventListener("abort", () => resolve(), { once: true });
      });
    return { store: { ...store, hints: { ...store.hints, listen } } as typeof store, sessions };
  }

  it("tells so, listens again after growing pauses, and looks as soon as it hears", async () => {
    const { store, sessions } = breakableStore();
    const { relay, log, runtime, sender } = await sleepingRelay(store, true);
    for (const pause of [200, 400, 800]) {
      sessions.at(-1)?.fail(new Error("cut"));
      const count = sessions.length;
      const deaf = await log.until("relay.deaf", count);
      expect(deaf.error.message).toBe("[store-failed] cut");
      expect(deaf.retryInMs).toBeGreaterThanOrEqual(pause / 2);
      expect(deaf.retryInMs).toBeLessThanOrEqual(pause);
      await runtime.advance(deaf.retryInMs - 1);
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
    expect((await log.until("relay.deaf", 4)).retryInMs).toBeLessThanOrEqual(200);
    await relay.stop();
  });

  it("stops though it waits to listen again", async () => {
    const { store, sessions } = breakableStore();
    const { relay, log } = await sleepingRelay(store, true);
    sessions[0]?.fail(new Error("cut"));
    await log.until("relay.deaf");
    await relay.stop();
    expect(sessions).toHaveLength(1);
  });
});
