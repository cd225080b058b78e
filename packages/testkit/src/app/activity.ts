import type { Telemetry, TelemetryEvent } from "postbox";

/** Counts everything that telemetry reports, so that `settled()` can wait for the next event. */
export interface Activity {
  readonly telemetry: Telemetry;
  /** Counts something that telemetry does not report. */
  changed(): void;
  /** The number of events so far. */
  readonly count: number;
  /** The running handlers, as text. */
  readonly handling: readonly string[];
  /** Resolves as soon as `count` differs from this number. */
  since(count: number): Promise<void>;
  /** The last error of a consumer, or without one of the relay, for this message. */
  errorOf(id: string, consumer?: string): Error | undefined;
}

/** After these events, no handler works on the delivery any more. */
const ends: ReadonlySet<TelemetryEvent["name"]> = new Set([
  "delivery.acked",
  "delivery.retried",
  "delivery.parked",
  "delivery.released",
  "delivery.revoked",
  "delivery.abandoned",
  "delivery.ignored",
] as const);

/** Passes every event on to `also`. */
export function createActivity(also: Telemetry): Activity {
  const errors = new Map<string, Error>();
  const handling = new Map<string, string>();
  let count = 0;
  let happened = () => {};
  let next = new Promise<void>((resolve) => {
    happened = resolve;
  });

  function changed(): void {
    count++;
    happened();
    next = new Promise((resolve) => {
      happened = resolve;
    });
  }

  function note(event: TelemetryEvent): void {
    if (!("id" in event)) return;
    const name = placeOf(event.id, "consumer" in event ? event.consumer : undefined);
    if ("error" in event) errors.set(name, event.error);
    if (event.name === "delivery.received") {
      handling.set(name, `consumer ${event.consumer} handles ${event.id}`);
    } else if (ends.has(event.name)) handling.delete(name);
  }

  return {
    telemetry(event) {
      note(event);
      changed();
      also(event);
    },
    changed,
    get count() {
      return count;
    },
    get handling() {
      return [...handling.values()];
    },
    since: (seen) => (count === seen ? next : Promise.resolve()),
    errorOf: (id, consumer) => errors.get(placeOf(id, consumer)),
  };
}

function placeOf(id: string, consumer = ""): string {
  return JSON.stringify([consumer, id]);
}
