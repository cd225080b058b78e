import type { Runtime } from "postbox/store";
import { type ManualRuntime, manualRuntime } from "../manual-runtime.js";

/** The clock of the store, the broker and the handlers. It stands still until a test advances it. */
export interface TestClock {
  /** Milliseconds since 1970. Starts at the beginning of 2026. */
  now(): number;
  /**
   * Advances the clock by `ms`. Scheduled messages and retries that become due are delivered by the next `settled()`,
   * or at once if a `settled()` is waiting.
   */
  advance(ms: number): Promise<void>;
}

/**
 * Two clocks: that of the test, and that of the polling loops. The second may run ahead, since nothing ever becomes due
 * by it.
 */
export interface TestTime {
  readonly clock: TestClock;
  /** For the store and the broker: their delays end by the test's clock. */
  readonly storage: Runtime;
  /** For the relay and the consumers: `poll` ends their pauses. */
  readonly loops: Runtime;
  /** Makes the relay and the consumers poll as if `ms` had passed, while the test's clock stands still. */
  poll(ms: number): Promise<void>;
}

/** `idle` is awaited whenever something becomes due by the test's clock. */
export function testTime(idle: () => Promise<void>): TestTime {
  const storage: ManualRuntime = manualRuntime({ idle });
  const polling: ManualRuntime = manualRuntime();
  return {
    clock: {
      now: storage.now,
      async advance(ms) {
        await storage.advance(ms);
        await polling.advance(ms);
      },
    },
    storage,
    loops: { ...polling, now: storage.now },
    poll: (ms) => polling.advance(ms),
  };
}
