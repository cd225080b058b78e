import { consoleTelemetry } from "./console.js";
import type { Telemetry } from "./events.js";

/**
 * A telemetry that a faulty listener cannot turn into a failure of the library. Without a listener, it is the
 * console's.
 */
export function telling(telemetry: Telemetry = consoleTelemetry): Telemetry {
  return (event) => {
    // Whoever listens must never decide whether a message is delivered, nor end the process.
    try {
      const answer: unknown = telemetry(event);
      if (answer instanceof Promise) answer.catch(() => {});
    } catch {}
  };
}
