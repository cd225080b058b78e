import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { telemetryLog } from "./telemetry-log.js";

const idle = { name: "relay.drained", box: "outbox" } as const;
const read = { name: "relay.read", box: "outbox", count: 3 } as const;

describe("telemetryLog", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it("returns a past event, or waits for the next one", async () => {
    const log = telemetryLog();
    log.telemetry(idle);
    expect(await log.until("relay.drained")).toBe(idle);
    const waiting = log.until((event) => event.name === "relay.read" && event.count > 2);
    log.telemetry(read);
    expect(await waiting).toBe(read);
    expect(log.of("relay.read")).toEqual([read]);
  });

  it("counts", async () => {
    const log = telemetryLog();
    log.telemetry(idle);
    let done = false;
    const third = log.until("relay.drained", 3).then(() => {
      done = true;
    });
    log.telemetry(idle);
    await Promise.resolve();
    expect(done).toBe(false);
    log.telemetry(idle);
    await third;
  });

  it("fails when its patience ends, and says what was seen", async () => {
    const log = telemetryLog();
    log.telemetry(idle);
    log.telemetry(read);
    const failing = expect(log.until("relay.lost")).rejects.toThrow(
      /not within 20000 ms: 1 × relay.lost; seen were 1 × relay.drained, 1 × relay.read; last:\n.*"count":3/s,
    );
    await vi.advanceTimersByTimeAsync(20_000);
    await failing;
  });
});
