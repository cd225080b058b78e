import { sleep } from "../../internal/runtime.js";
import type { DrainContext } from "../context.js";

export interface ScheduleOptions extends DrainContext {
  /** Messages were appended. */
  promoted(): void;
}

/** Each poll costs a round trip, so no relay polls more often than this, whatever its `pollIntervalMs`. */
const leastPauseMs = 250;

/**
 * Appends scheduled messages when they are due, until the signal is aborted. Every relay does this, since no lane owns
 * scheduled messages. After a crash, a message is either scheduled or appended, never both.
 */
export async function keepSchedule(options: ScheduleOptions, signal: AbortSignal): Promise<void> {
  const { box, boxName, runtime, telemetry } = options;
  const longestPauseMs = Math.max(options.pollIntervalMs, leastPauseMs);
  let failures = 0;
  while (!signal.aborted) {
    let pauseMs = longestPauseMs;
    try {
      const { count, nextInMs = longestPauseMs } = await box.promote(options.batchSize);
      failures = 0;
      pauseMs = Math.min(Math.ceil(nextInMs), longestPauseMs);
      if (count > 0) {
        telemetry({ name: "relay.promoted", box: boxName, count });
        options.promoted();
      }
    } catch (error) {
      if (options.isFatal(error)) throw error;
      pauseMs = options.storeBackoff(++failures);
      options.failed(error, pauseMs);
    }
    await sleep(runtime, pauseMs, signal);
  }
}
