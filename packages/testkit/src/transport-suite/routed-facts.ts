import { constant, createOutbox, createRelay, createRouter, type TelemetryEvent, timeout, upcastFrom } from "postbox";
import { memoryStore } from "postbox/memory";
import { describe, expect } from "vitest";
import { patienceMs, patiently } from "../patience.js";
import { type TransportFact, testEvent } from "./transport-facts.js";

/** A relay and a router on a transport. */
export function routedFacts(fact: TransportFact): void {
  describe("between a relay and a router", () => {
    fact("a poison message is parked, and all others are handled once", "settlesEach", async (stage) => {
      const { harness, queue, event, send, message } = stage;
      const handled: number[] = [];
      const router = createRouter(queue, { maxAttempts: 3, backoff: constant(1) }).on(event, (data) => {
        if (Number(data) % 10 === 0) throw new Error(`${data} is poison`);
        handled.push(Number(data));
      });
      await send(...numbers(60).map((n) => message(`m${n}`, { key: `k${n % 7}`, data: json(n) })));
      await running([(signal) => router.run(harness.receiver({ queue, prefetch: 5 }), signal)], async () => {
        await expect.poll(async () => (await harness.parked(queue)).length, { timeout: patienceMs }).toBe(6);
        await expect.poll(() => handled.length, { timeout: patienceMs }).toBe(54);
      });
      expect([...new Set(handled)].sort((a, b) => a - b)).toEqual(numbers(60).filter((n) => n % 10 !== 0));
      const parked = await harness.parked(queue);
      expect(parked.map(({ reason }) => reason).sort()).toEqual(
        [0, 10, 20, 30, 40, 50].map((n) => expect.stringContaining(`${n} is poison`)),
      );
    });

    fact("restarts park nothing: every message is handled in the end", "settlesEach", async (stage) => {
      const { harness, queue, event, send, message, consume } = stage;
      await send(...numbers(30).map((n) => message(`m${n}`, { data: json(n) })));
      for (let restarts = 0; restarts < 12; restarts++) {
        const consumer = consume({ prefetch: 20 });
        const delivery = await consumer.next();
        if (restarts % 2 === 0) await consumer.crash();
        else {
          consumer.abort();
          for (const each of [delivery, ...consumer.deliveries]) await each.release().catch(() => {});
          await patiently(consumer.running, () => "the end of a receiver");
        }
      }
      const handled = new Set<number>();
      const router = createRouter(queue, { maxAttempts: 2 }).on(event, (data) => void handled.add(Number(data)));
      await running([(signal) => router.run(harness.receiver({ queue }), signal)], () =>
        expect.poll(() => handled.size, { timeout: patienceMs }).toBe(30),
      );
      expect(await harness.parked(queue)).toEqual([]);
    });

    fact("a message whose handler times out is retried", "settlesEach", async (stage) => {
      const { harness, queue, event, send, message } = stage;
      const attempts: number[] = [];
      const router = createRouter(queue, { backoff: constant(1) })
        .use(timeout(100))
        .on(event, async (_, { attempt, signal }) => {
          attempts.push(attempt);
          if (attempts.length === 1) await new Promise((resolve) => signal.addEventListener("abort", resolve));
        });
      await send(message("m1", { data: json(1) }));
      await running([(signal) => router.run(harness.receiver({ queue }), signal)], () =>
        expect.poll(() => attempts, { timeout: patienceMs }).toEqual([1, 2]),
      );
    });

    fact(
      "an instance that lacks a handler leaves its messages to others, and spends no attempt",
      "settlesEach",
      async (stage) => {
        const { harness, queue, event, send, message } = stage;
        const added = testEvent(event.topic, "Added");
        await harness.bind(queue, [event, added]);
        const told: TelemetryEvent[] = [];
        const handled: unknown[] = [];
        const options = { maxAttempts: 1, backoff: constant(1) };
        const older = createRouter(queue, { ...options, telemetry: (one) => told.push(one) }).on(event, () => {});
        const newer = createRouter(queue, options);
        newer.on(event, () => {});
        newer.on(added, (data, { attempt }) => void handled.push([Number(data), attempt]));
        await send(...numbers(40).map((n) => message(`m${n}`, { type: added.type, data: json(n) })));
        const retried = () => told.filter(({ name }) => name === "delivery.retried").length;
        await running([(signal) => older.run(harness.receiver({ queue }), signal)], async () => {
          await expect.poll(retried, { timeout: patienceMs }).toBeGreaterThan(80);
          await running([(signal) => newer.run(harness.receiver({ queue }), signal)], () =>
            expect.poll(() => handled.length, { timeout: patienceMs }).toBe(40),
          );
        });
        expect(handled.sort()).toEqual(
          numbers(40)
            .map((n) => [n, 1])
            .sort(),
        );
        expect(await harness.parked(queue)).toEqual([]);
        expect(told.filter(({ name }) => name === "consumer.types-differ")).toMatchObject([
          { consumer: queue, type: added.type, handled: [event.type] },
        ]);
      },
    );

    fact("a handler that upcasts gets messages of its older topics", "settlesEach", async (stage) => {
      const { harness, queue, event, send, message } = stage;
      const older = testEvent(`${event.topic}.older`, "Happened");
      const upcasting = testEvent(event.topic, "Happened", [upcastFrom(older, (data) => [data])]);
      const handled: unknown[] = [];
      const router = createRouter(queue).on(
        upcasting,
        (data, { message: { type } }) => void handled.push([type, data]),
      );
      await running([(signal) => router.run(harness.receiver({ queue }), signal)], async () => {
        await send(message("m1", { data: json(1) }));
        // Retries until the router has bound its queue: messages sent before are refused, or lost.
        const seen = async () => {
          if (handled.length < 2) await send(message("m2", { type: older.type, topic: older.topic, data: json(2) }));
          return handled;
        };
        await expect.poll(seen, { timeout: patienceMs }).toContainEqual([older.type, [2]]);
        await expect.poll(() => handled, { timeout: patienceMs }).toContainEqual([event.type, 1]);
      });
    });

    fact("a publisher may start before any consumer, and its messages wait in order", "onUnroutable", async (stage) => {
      const { harness, event, queue } = stage;
      const early = testEvent(`${event.topic}.early`, "Happened");
      const store = memoryStore();
      const outbox = createOutbox(store, { source: "/testkit" });
      const told: TelemetryEvent[] = [];
      const relay = createRelay(store, harness.sender({ onUnroutable: "wait" }), {
        pollIntervalMs: 20,
        maxAttempts: 1,
        telemetry: (one) => told.push(one),
      });
      const handled: number[] = [];
      const router = createRouter(queue).on(early, (data) => void handled.push(Number(data)));
      await store.transaction(async (tx) => {
        for (const n of numbers(30)) await outbox.in(tx).publish(early, n, { key: `k${n % 3}` });
      });
      await running([(signal) => relay.run(signal)], async () => {
        const failures = () => told.filter(({ name }) => name === "message.failed").length;
        await expect.poll(failures, { timeout: patienceMs }).toBeGreaterThan(6);
        await running([(signal) => router.run(harness.receiver({ queue }), signal)], () =>
          expect.poll(() => handled.length, { timeout: patienceMs }).toBe(30),
        );
      });
      for (const key of numbers(3)) {
        expect(handled.filter((n) => n % 3 === key)).toEqual(numbers(30).filter((n) => n % 3 === key));
      }
      expect(told.filter(({ name }) => name === "message.parked")).toEqual([]);
    });

    fact("keys stay in order, and nothing is lost when a binding is deleted in between", "unbinds", async (stage) => {
      const { harness, queue, event } = stage;
      const store = memoryStore();
      const outbox = createOutbox(store, { source: "/testkit" });
      let refused = () => {};
      const unroutable = new Promise<void>((resolve) => {
        refused = resolve;
      });
      const relay = createRelay(store, harness.sender(), {
        pollIntervalMs: 20,
        backoff: constant(20),
        maxAttempts: 1_000_000,
        telemetry: ({ name }) => name === "message.failed" && refused(),
      });
      const handled: number[] = [];
      const router = createRouter(queue).on(event, (data) => {
        handled.push(Number(data));
      });
      const publish = (from: number, to: number) =>
        store.transaction(async (tx) => {
          for (let n = from; n < to; n++) await outbox.in(tx).publish(event, n, { key: `k${n % 5}` });
        });
      const both = [
        (signal: AbortSignal) => relay.run(signal),
        (signal: AbortSignal) => router.run(harness.receiver({ queue }), signal),
      ];
      await running(both, async () => {
        await publish(0, 50);
        await expect.poll(() => handled.length, { timeout: patienceMs }).toBe(50);
        await harness.unbind?.(queue, [event]);
        await publish(50, 100);
        await patiently(unroutable, () => "a message that no queue wants");
        await harness.bind(queue, [event]);
        await publish(100, 150);
        await expect.poll(() => handled.length, { timeout: patienceMs }).toBe(150);
      });
      for (const key of numbers(5)) {
        expect(handled.filter((n) => n % 5 === key)).toEqual(numbers(150).filter((n) => n % 5 === key));
      }
    });
  });
}

/** Runs these parts until `proof` has ended. */
async function running(
  started: readonly ((signal: AbortSignal) => Promise<void>)[],
  prove: () => Promise<unknown>,
): Promise<void> {
  const stopping = new AbortController();
  const runs = started.map((start) => start(stopping.signal));
  try {
    await Promise.race([prove(), ...runs.map((run) => run.then(() => Promise.reject(new Error("it ended early"))))]);
  } finally {
    stopping.abort();
    await Promise.all(runs);
  }
}

const numbers = (count: number) => Array.from({ length: count }, (_, n) => n);
const json = (value: unknown) => Buffer.from(JSON.stringify(value));
