import type { Telemetry, TelemetryEvent } from "./events.js";
import { levelOf, lineOf } from "./log.js";

/** After a line, others like it are counted for so long, and not written. */
const pauseMs = 60_000;
/** So many different ones are told apart. */
const mostKinds = 1_000;

/**
 * Where nobody listens: warnings and errors, one line each, on the console. Of those that are alike, one in a minute is written, with
 * how many were left out since.
 */
export function toConsole(
  output: Pick<Console, "warn" | "error"> = console,
  now: () => number = () => performance.now(),
): Telemetry {
  const kinds = new Map<string, { readonly writtenAt: number; leftOut: number }>();
  return (event) => {
    const level = levelOf(event);
    if (level !== "warn" && level !== "error") return;
    const kind = kindOf(event);
    const before = kinds.get(kind);
    if (before !== undefined && now() - before.writtenAt < pauseMs) {
      before.leftOut++;
      return;
    }
    kinds.delete(kind);
    kinds.set(kind, { writtenAt: now(), leftOut: 0 });
    // The one that was written longest ago.
    if (kinds.size > mostKinds) kinds.delete(kinds.keys().next().value as string);
    const more = before?.leftOut ? ` (${before.leftOut} more like it since the last one was written)` : "";
    output[level](`postbox: ${lineOf(event)}${more}`);
  };
}

/** What is alike: the same thing that happened in the same place for the same reason, whichever message it was. */
function kindOf(event: TelemetryEvent): string {
  const { box, consumer, whose, place, schedule, error } = event as {
    readonly box?: string;
    readonly schedule?: string;
    readonly consumer?: string;
    readonly whose?: string;
    readonly place?: string;
    readonly error?: { readonly code?: unknown; readonly name?: unknown };
  };
  return JSON.stringify([event.name, box ?? consumer ?? whose ?? schedule, place, error?.code ?? error?.name]);
}

/** One for all, so that what several parts tell is told once. */
export const consoleTelemetry = toConsole();

/** Listens to nothing, and writes nothing: for whoever does not want warnings and errors on the console. */
export const silent: Telemetry = () => {};
