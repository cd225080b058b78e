import type { Telemetry, TelemetryEvent } from "postbox";
import { patiently } from "./patience.js";

type EventName = TelemetryEvent["name"];
type EventOf<Name extends EventName> = Extract<TelemetryEvent, { readonly name: Name }>;

/** A listener that keeps every event, so that a test can wait for one instead of for time. */
export interface TelemetryLog {
  /** Pass it as the option `telemetry`. */
  readonly telemetry: Telemetry;
  readonly events: readonly TelemetryEvent[];
  /** The events with this name. */
  of<Name extends EventName>(name: Name): EventOf<Name>[];
  /**
   * Resolves with the `times`-th event of this name (by default the first), or the first that passes `test`; past
   * events count. Fails after `patienceMs`, with what was seen instead.
   */
  until<Name extends EventName>(name: Name, times?: number): Promise<EventOf<Name>>;
  until(test: (event: TelemetryEvent) => boolean, what?: string): Promise<TelemetryEvent>;
}

/**
 * Makes a telemetry listener that records every event, and can wait for one.
 *
 * @example
 * ```ts
 * const log = telemetryLog();
 * await createRelay(store, sender, { telemetry: log.telemetry }).start();
 * await log.until("relay.owned");
 * ```
 */
export function telemetryLog(): TelemetryLog {
  const events: TelemetryEvent[] = [];
  const watchers = new Set<(event: TelemetryEvent) => void>();

  const until = (wanted: EventName | ((event: TelemetryEvent) => boolean), more?: number | string) => {
    let left = typeof more === "number" ? more : 1;
    const passes = (event: TelemetryEvent) =>
      (typeof wanted === "string" ? event.name === wanted : wanted(event)) && --left <= 0;
    const past = events.find(passes);
    if (past !== undefined) return Promise.resolve(past);
    let watch = (_: TelemetryEvent) => {};
    const happened = new Promise<TelemetryEvent>((resolve) => {
      watch = (event) => passes(event) && resolve(event);
      watchers.add(watch);
    });
    const what = typeof wanted === "string" ? `${more ?? 1} × ${wanted}` : (more ?? "the event in question");
    return patiently(happened, () => `${what}; ${summary(events)}`).finally(() => watchers.delete(watch));
  };

  return {
    events,
    telemetry(event) {
      events.push(event);
      for (const watch of [...watchers]) watch(event);
    },
    of: <Name extends EventName>(name: Name) => events.filter((event): event is EventOf<Name> => event.name === name),
    until: until as TelemetryLog["until"],
  };
}

/** How often each event was seen, and the last few with details. */
function summary(events: readonly TelemetryEvent[]): string {
  if (events.length === 0) return "nothing was seen";
  const counts = new Map<string, number>();
  for (const { name } of events) counts.set(name, (counts.get(name) ?? 0) + 1);
  const seen = [...counts].map(([name, count]) => `${count} × ${name}`).join(", ");
  const shown = (_: string, value: unknown) => (value instanceof Error ? value.message : value);
  const last = events.slice(-5).map((event) => `  ${JSON.stringify(event, shown)}`);
  return `seen were ${seen}; last:\n${last.join("\n")}`;
}
