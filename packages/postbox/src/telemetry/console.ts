import type { Telemetry, TelemetryEvent } from "./events.js";
import { levelOf, lineOf } from "./log.js";

/** After a line, similar events are counted for this long instead of written. */
const pauseMs = 60_000;
/**
 * How many kinds are distinguished within that time. Beyond it, all events of one name are of one kind, since a type
 * may be any text.
 */
const mostKinds = 100;

/** The last line of one kind, and what followed it. */
interface Written {
  at: number;
  leftOut: number;
  latest: TelemetryEvent;
}

/**
 * The default telemetry: warnings and errors on the console, one line each. Of similar events it writes one a minute,
 * with the number left out since. It writes the latest one when the minute is over, or when the process ends, so none
 * is lost for good.
 */
export function toConsole(output: Pick<Console, "warn" | "error"> = console): Telemetry {
  const kinds = new Map<string, Written>();
  let hearsExit = false;

  function write(kind: string, event: TelemetryEvent, leftOut: number): void {
    kinds.delete(kind);
    kinds.set(kind, { at: performance.now(), leftOut: 0, latest: event });
    const more = leftOut > 0 ? ` (${leftOut} more like it since the last one was written)` : "";
    output[levelOf(event) === "warn" ? "warn" : "error"](`postbox: ${lineOf(event)}${more}`);
  }

  /** The kinds whose pause is over with nothing left out, in the order in which they were written. */
  function forget(): void {
    for (const [kind, { at, leftOut }] of kinds) {
      if (performance.now() - at < pauseMs) return;
      if (leftOut === 0) kinds.delete(kind);
    }
  }

  function writeLeftOut(kind: string, { leftOut, latest }: Written): void {
    if (leftOut > 0) write(kind, latest, leftOut - 1);
  }

  function leaveOut(kind: string, written: Written, event: TelemetryEvent): void {
    written.latest = event;
    if (++written.leftOut > 1) return;
    const untilMs = written.at + pauseMs - performance.now();
    setTimeout(() => kinds.get(kind) === written && writeLeftOut(kind, written), untilMs).unref();
    if (hearsExit) return;
    hearsExit = true;
    process.once("exit", () => {
      for (const [each, last] of [...kinds]) writeLeftOut(each, last);
    });
  }

  return (event) => {
    const level = levelOf(event);
    if (level !== "warn" && level !== "error") return;
    forget();
    const exact = kindOf(event);
    const kind = kinds.size < mostKinds || kinds.has(exact) ? exact : event.name;
    const written = kinds.get(kind);
    if (written !== undefined && performance.now() - written.at < pauseMs) leaveOut(kind, written, event);
    else write(kind, event, written?.leftOut ?? 0);
  };
}

/**
 * Events are similar if the same happened in the same place for the same reason, to whichever message of a type. An
 * unreachable broker is one fault, however many connections lead to it.
 */
function kindOf(event: TelemetryEvent): string {
  const { box, consumer, whose, place, schedule, type, error } = event as {
    readonly box?: string;
    readonly schedule?: string;
    readonly consumer?: string;
    readonly whose?: string;
    readonly place?: string;
    readonly type?: string;
    readonly error?: { readonly code?: unknown; readonly name?: unknown; readonly message?: unknown };
  };
  const who = box ?? consumer ?? schedule ?? (place === undefined ? whose : error?.message);
  return JSON.stringify([event.name, who, place, type, error?.code ?? error?.name]);
}

/** Shared by all parts, so that what several parts report is written once. */
export const consoleTelemetry = toConsole();

/** Writes nothing: turns off warnings and errors on the console. */
export const silent: Telemetry = () => {};
