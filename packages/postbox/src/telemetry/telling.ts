import { consoleTelemetry } from "./console.js";
import type { Telemetry } from "./events.js";

/** Wraps telemetry so that a listener which throws causes no failure in the library. Defaults to the console. */
export function telling(telemetry: Telemetry = consoleTelemetry): Telemetry {
  return (event) => {
    // A listener must never decide whether a message is delivered, nor end the process.
    try {
      const answer: unknown = telemetry(event);
      if (answer instanceof Promise) answer.catch(() => {});
    } catch {}
  };
}
