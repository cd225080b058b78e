import fc from "fast-check";
import { createRouter, durableInbox, type Message, type Store, transaction } from "postbox";
import { memoryBroker } from "postbox/memory";
import { createMessage } from "postbox/store";
import { describe, expect, onTestFinished } from "vitest";
import { arbitraryMessage } from "../arbitrary-message.js";
import { gate } from "../gate.js";
import { comparable } from "../messages.js";
import { patienceMs } from "../patience.js";
import type { StoreFact } from "../store-suite/store-facts.js";
import { anything, box, consumer, consuming, Keyed, orders, Placed, untilEffects, untilEmpty } from "./inbox-run.js";

const mode = "durableInbox";

/** What only an inbox that stores messages before they are handled can promise. */
export function durableFacts<Tx>(fact: StoreFact<Tx>): void {
  describe("only a durable inbox", () => {
    fact("keeps the order of effects of a key, whatever fails", async (harness) => {
      const { broker, publisher } = orders();
      const { start, stop } = consuming(harness, {
        mode,
        handle: ({ order, attempt }) => {
          if (attempt <= Number(order) % 4) throw new Error("not yet");
        },
      });
      const placed = Array.from({ length: 20 }, (_, n) => ({ order: String(n), key: `k${n % 2}` }));
      for (const order of placed) await publisher.publish(Keyed, order);
      start(broker.receiver());
      await untilEffects(harness, placed.length);
      await untilEmpty(harness);
      await stop();
      const effects = await harness.effects();
      for (const parity of [0, 1]) {
        const own = effects.map(Number).filter((n) => n % 2 === parity);
        expect(own).toEqual([...own].sort((a, b) => a - b));
      }
      expect(effects).toHaveLength(placed.length);
    });

    fact("delivers every message exactly as it was received", async (harness) => {
      const store = harness.store as Store;
      const Anything = anything("inbox.Anything");
      const broker = memoryBroker();
      broker.bind(consumer, [Anything]);
      const handled = new Map<string, Message>();
      const router = createRouter(consumer)
        .use(transaction(store))
        .use(durableInbox(store, { pollIntervalMs: 20 }))
        .on(Anything, (_, { message }) => void handled.set(message.id, message));
      onTestFinished(() => router.stop());
      router.start(broker.receiver());
      let count = 0;
      // A message that was handled, or is too old, is not handled again.
      const one = arbitraryMessage().map((message) => {
        const id = `${count++} ${[...message.id].slice(0, 30).join("")}`;
        const time = new Date().toISOString().replace("Z", "123456+00:00");
        return createMessage({ ...message, id, time, type: Anything.type, topic: Anything.topic });
      });
      await fc.assert(
        fc.asyncProperty(fc.array(one, { minLength: 1, maxLength: 10 }), async (messages) => {
          await broker.sender().send(messages, () => {}, new AbortController().signal);
          const isHandled = () => messages.every(({ id }) => handled.has(id));
          await expect.poll(isHandled, { interval: 5, timeout: patienceMs }).toBe(true);
          const received = messages.map(({ id }) => comparable(handled.get(id) as Message));
          expect(received).toStrictEqual(messages.map(comparable));
        }),
        { numRuns: 10 },
      );
    });

    fact("acknowledges messages that are not handled yet", async (harness) => {
      const { broker, publisher } = orders();
      const go = gate();
      const { log, start, stop } = consuming(harness, { mode, concurrency: 1, handle: () => go.opened });
      for (const order of ["1", "2", "3"]) await publisher.publish(Placed, { order });
      start(broker.receiver());
      await log.until("delivery.stored", 3);
      expect(broker.depth("billing")).toBe(0);
      expect(await harness.effects()).toEqual([]);
      go.open();
      await untilEffects(harness, 3);
      await untilEmpty(harness);
      await stop();
    });

    fact(
      "a stuck message is listed, retried, and handled once by another instance",
      "concurrentTransactions",
      async (harness) => {
        const { broker, publisher } = orders();
        const [begun, stuck] = [gate(), gate()];
        const hanging = consuming(harness, {
          mode,
          handle: () => {
            begun.open();
            return stuck.opened;
          },
        });
        const { id } = await publisher.publish(Keyed, { order: "1", key: "k" });
        hanging.start(broker.receiver());
        await begun.opened;
        const healthy = consuming(harness, { mode, store: harness.another() });
        healthy.start(broker.receiver());
        const selection = { box, status: "pending" as const, createdBefore: new Date(Date.now() + 1_000) };
        const { messages } = await harness.store.admin.list(selection);
        expect(messages.map((message) => message.id)).toEqual([id]);
        await harness.store.admin.retry({ box, ids: [id], status: "pending" }, { by: "ann" });
        await untilEffects(harness, 1);
        expect(healthy.begun).toEqual(["1"]);
        stuck.open();
        await Promise.all([hanging.stop(), healthy.stop()]);
        expect(await harness.effects()).toEqual(["1"]);
      },
    );

    fact("continues with the other keys of a lane if one is stuck", "concurrentTransactions", async (harness) => {
      const { broker, publisher } = orders();
      const [begun, stuck] = [gate(), gate()];
      let hangs = true;
      const run = consuming(harness, {
        mode,
        handle: async () => {
          if (!hangs) return;
          hangs = false;
          begun.open();
          await stuck.opened;
        },
      });
      run.start(broker.receiver());
      const { id } = await publisher.publish(Keyed, { order: "hangs", key: "k" });
      await begun.opened;
      await harness.store.admin.retry({ box, ids: [id], status: "pending" }, { by: "ann" });
      await run.log.until("relay.lost");
      // Enough keys to cover all lanes in the end.
      const others = Array.from({ length: 100 }, (_, n) => `other-${n}`);
      for (const key of others) await publisher.publish(Keyed, { order: key, key });
      await untilEffects(harness, others.length);
      expect(await harness.effects()).not.toContain("hangs");
      stuck.open();
      await untilEffects(harness, others.length + 1);
      await run.stop();
    });
  });
}
