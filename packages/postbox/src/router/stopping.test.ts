import { getEventListeners } from "node:events";
import { gate, manualRuntime, telemetryLog } from "@postbox/testkit";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { defineEvent } from "../event/define-event.js";
import { createMessage } from "../message/message.js";
import type { Delivery, Subscription } from "../transport.js";
import { createRouter } from "./create-router.js";

const Placed = defineEvent({ type: "shop.Placed", schema: z.object({}) });

/** A delivery that says how it was settled, and answers as told. */
function delivery(answers: Partial<Delivery> = {}, attempt = 1) {
  const verbs: string[] = [];
  const verb = (name: "ack" | "retry" | "park" | "release") => (argument: never) => {
    verbs.push(name);
    return answers[name]?.(argument) ?? Promise.resolve();
  };
  const message = createMessage({ id: "m1", source: "/", type: Placed.type, key: "k", data: Buffer.from("{}") });
  const made = {
    message,
    attempt,
    ack: verb("ack"),
    retry: verb("retry"),
    park: verb("park"),
    release: verb("release"),
  } as Delivery;
  return { delivery: made, verbs };
}

const never = () => new Promise<void>(() => {});
const refuses = () => Promise.reject(new Error("the connection is gone"));

/** A router on a receiver that does what the test says. */
function world(receive: (subscription: Subscription, signal: AbortSignal) => Promise<void>, handler = async () => {}) {
  const runtime = manualRuntime();
  const log = telemetryLog();
  const options = { runtime, telemetry: log.telemetry, shutdownTimeoutMs: 1000, maxAttempts: 3 };
  const router = createRouter("billing", options).on(Placed, handler);
  router.start({ name: "hand-made", receive });
  return { runtime, log, router };
}

const untilAborted = async (signal: AbortSignal) => {
  if (!signal.aborted) await new Promise((resolve) => signal.addEventListener("abort", resolve));
};

describe("a stop is bounded", () => {
  it("when the receiver does not end, by an error that is told too", async () => {
    const { router, runtime, log } = world(never);
    const stopped = router.stop();
    const refusal = expect(stopped).rejects.toMatchObject({
      code: "stop-timeout",
      message: expect.stringContaining("its receiver hand-made did not end within 5000 ms"),
    });
    await runtime.advance(4999);
    expect(log.of("router.failed")).toEqual([]);
    await runtime.advance(1);
    await refusal;
    expect(log.of("router.failed")).toMatchObject([{ error: { code: "stop-timeout" } }]);
    router.start({ name: "another", receive: async () => {} });
    await router.stop();
  });

  it("when it was stopped before it ran, and the receiver does not care", async () => {
    const runtime = manualRuntime();
    const router = createRouter("billing", { runtime }).on(Placed, () => {});
    const refusal = expect(router.run({ name: "deaf", receive: never }, AbortSignal.abort())).rejects.toMatchObject({
      code: "stop-timeout",
    });
    await runtime.advance(5000);
    await refusal;
  });

  it("when the broker does not answer to what is given back", async () => {
    const { delivery: late, verbs } = delivery({ release: never });
    const receive = async ({ deliver }: Subscription, signal: AbortSignal) => {
      await deliver(late);
      await untilAborted(signal);
    };
    const { router, runtime, log } = world(receive, never);
    await log.until("delivery.received");
    const stopped = router.stop();
    await runtime.advance(1000);
    expect(verbs).toEqual(["release"]);
    await runtime.advance(5000);
    await stopped;
  });
});

it.each([
  ["ends by itself", async () => {}],
  ["fails", refuses],
])("a receiver that %s leaves its handlers the time to end, and the signal alone", async (_, ending) => {
  const finish = gate();
  const { delivery: only, verbs } = delivery();
  const log = telemetryLog();
  const router = createRouter("billing", { telemetry: log.telemetry }).on(Placed, () => finish.opened);
  const { signal } = new AbortController();
  const receive = async ({ deliver }: Subscription) => {
    await deliver(only);
    await ending();
  };
  const ended = router.run({ name: "short", receive }, signal).catch(({ message }) => message);
  await log.until("delivery.received");
  await new Promise(setImmediate);
  expect(verbs).toEqual([]);
  finish.open();
  expect(await ended).toBe(ending === refuses ? "[unknown] the connection is gone" : undefined);
  expect(verbs).toEqual(["ack"]);
  expect(getEventListeners(signal, "abort")).toEqual([]);
});

describe("while it stops", () => {
  it("a message that comes is given back, and that this fails does not fail the stop", async () => {
    for (const [release, told] of [
      [async () => {}, 0],
      [refuses, 1],
    ] as const) {
      const { delivery: late, verbs } = delivery({ release });
      const { router, log } = world(async ({ deliver }, signal) => {
        await untilAborted(signal);
        await deliver(late);
      });
      await router.stop();
      expect(verbs).toEqual(["release"]);
      expect(log.of("router.failed")).toHaveLength(told);
      expect(log.of("delivery.received")).toEqual([]);
    }
  });
});
