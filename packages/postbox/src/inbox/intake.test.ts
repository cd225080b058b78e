import { telemetryLog } from "@postbox/testkit";
import { constant } from "postbox";
import { expect, it } from "vitest";
import { runtimeWith } from "../internal/runtime.js";
import { createMessage } from "../message/message.js";
import type { Delivery } from "../transport.js";
import { checkInbox } from "./inbox-options.js";
import { createIntake } from "./intake.js";

it("a stop while the store is away gives back all that waits, and what waits to be taken", async () => {
  const log = telemetryLog();
  const away = () => Promise.reject(new Error("the store is away"));
  const intake = createIntake({
    ...checkInbox("durableInbox", { batchSize: 2 }, 1_000),
    inbox: { keep: away, setAside: away },
    inOrder: true,
    brokerParks: true,
    unknown: "park",
    kept: () => {},
    consumer: "billing",
    concurrency: 1,
    maxAttempts: 10,
    backoff: constant(60_000),
    telemetry: log.telemetry,
    runtime: runtimeWith(undefined),
  });
  const released: string[] = [];
  const deliveryOf = (id: string): Delivery => ({
    message: createMessage({ id, source: "/test", type: "test.Happened", data: new Uint8Array() }),
    attempt: 1,
    ack: () => Promise.reject(new Error("nobody has stored it")),
    retry: () => Promise.reject(new Error("nothing is wrong with it")),
    park: () => Promise.reject(new Error("nothing is wrong with it")),
    release: async () => void released.push(id),
  });
  const [stop, end] = [new AbortController(), new AbortController()];
  const running = intake.run(stop.signal, end.signal, new AbortController().signal);
  // As a receiver does: one after the other, each when the one before was taken; and it ends when it has handed over its last.
  const receiving = (async () => {
    for (let at = 0; at < 10 && !stop.signal.aborted; at++) await intake.take(deliveryOf(`m${at}`));
  })().finally(() => end.abort());
  await log.until("router.failed");
  // By now it is full, and the receiver waits.
  await new Promise((resolve) => setImmediate(resolve));
  stop.abort();
  await receiving;
  await running;
  expect(released).toEqual(released.map((_, at) => `m${at}`));
  expect(released.length).toBeGreaterThanOrEqual(4);
});
