import { manualRuntime, telemetryLog } from "@postbox/testkit";
import { expect, it } from "vitest";
import { constant, exponential } from "../backoff.js";
import { createUnknownTypes } from "./unknown-types.js";

const waitMs = 60_000;

function unknownTypes(backoff = exponential({ jitter: 0 })) {
  const runtime = manualRuntime();
  const log = telemetryLog();
  const handled = ["shop.Placed"];
  const types = createUnknownTypes({
    consumer: "billing",
    handled,
    waitMs,
    backoff,
    telemetry: log.telemetry,
    runtime,
  });
  const published = (agoMs: number) => new Date(runtime.now() - agoMs).toISOString();
  return { runtime, log, types, published };
}

it("waits with growing delays, and not for ever", async () => {
  const { runtime, types, published } = unknownTypes();
  const message = { type: "shop.Added", time: published(0) };
  const delays: number[] = [];
  for (let delay = types.retryInMs(message); delay !== undefined; delay = types.retryInMs(message)) {
    delays.push(delay);
    await runtime.advance(delay);
  }
  expect(delays).toEqual([200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200]);
});

it("gives each message its own time, which a backlog does not use up", async () => {
  const { runtime, types, published } = unknownTypes();
  const old = { type: "shop.Added", time: published(10 * waitMs) };
  expect(types.retryInMs(old)).toBe(200);
  await runtime.advance(waitMs);
  expect(types.retryInMs(old)).toBeUndefined();
  expect(types.retryInMs({ type: "shop.Added" })).toBeUndefined();
  expect(types.retryInMs({ type: "shop.Added", time: published(0) })).toBe(200);
  // The publisher's clock is ahead of ours.
  expect(types.retryInMs({ type: "shop.Added", time: published(-waitMs) })).toBe(200);
});

it("reports each type once, and a bounded number of them", async () => {
  const { log, types, runtime } = unknownTypes(constant(5));
  for (let round = 0; round < 2; round++) {
    for (let n = 0; n < 1100; n++) expect(types.retryInMs({ type: `shop.${n}` })).toBe(5);
  }
  expect(log.of("consumer.types-differ")).toHaveLength(1000);
  expect(log.of("consumer.types-differ")[0]).toMatchObject({ type: "shop.0", handled: ["shop.Placed"] });
  await runtime.advance(waitMs);
  expect(types.retryInMs({ type: "shop.1099" })).toBeUndefined();
});
