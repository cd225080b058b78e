import type { HistoryEvent, Sighting } from "@postbox/testkit/history";
import type { Message, TelemetryEvent } from "postbox";
import type { Situation } from "./situations.js";
import type { World } from "./world.js";

/** Records the history of a run. */
export class Recorder {
  readonly history: HistoryEvent[] = [];
  /** How often each situation occurred that the library has special code for. */
  readonly situations = new Map<Situation, number>();
  readonly #world: World;
  readonly #trace: ((line: string) => void) | undefined;

  /** `trace` receives each event as text, as it happens. */
  constructor(world: World, trace?: (line: string) => void) {
    this.#world = world;
    this.#trace = trace;
  }

  record(event: HistoryEvent): void {
    this.history.push(event);
    if (this.#trace === undefined) return;
    this.note("", told(event));
  }

  /** Counts a situation. */
  meet(situation: Situation): void {
    this.situations.set(situation, (this.situations.get(situation) ?? 0) + 1);
  }

  telemetry(who: string, event: TelemetryEvent): void {
    const situation = worthCounting[event.name];
    if (situation !== undefined) this.meet(situation);
    if (this.#trace === undefined) return;
    if (worthTelling.has(event.name)) this.note(who, toldOf(event));
  }

  note(who: string, text: string): void {
    this.#trace?.(`${this.#world.now.toFixed(1).padStart(9)}  ${who.padEnd(12)} ${text}`);
  }
}

const worthCounting: Partial<Record<TelemetryEvent["name"], Situation>> = {
  "message.late": "a late commit was found",
  "message.held": "a message went behind a failed one of its key",
  "message.suspected": "a suspect was counted",
  "message.parked": "a message was parked",
  "message.dropped": "a sender has dropped a message",
  "relay.lost": "a relay lost lanes",
  "relay.released": "a relay gave lanes back",
  "relay.blocked": "a total order waited for a gap",
  "breaker.opened": "a breaker opened",
  "delivery.skipped": "the inbox skipped a repetition",
  "delivery.retried": "a handler failed and was retried",
  "delivery.parked": "a consumer parked a message",
  "relay.promoted": "a scheduled message came due",
};

/** A message as it was seen, with every field that must not change. */
export function sightingOf({ id, key, type, topic, data }: Message): Sighting {
  const digest = `${topic} ${type} ${Buffer.from(data).toString("latin1")}`;
  return key === undefined ? { id, digest } : { id, key, digest };
}

/** The name of a message in this simulation: its data. */
export function nameOf({ data }: Pick<Message, "data">): string {
  return /"name":"([^"]*)"/.exec(Buffer.from(data).toString("latin1"))?.[1]?.trim() ?? "?";
}

function told(event: HistoryEvent): string {
  const { what } = event;
  if ("message" in event) {
    const name = /"name":"([^"]*)"/.exec(event.message.digest)?.[1]?.trim();
    const by = "tx" in event ? ` in ${event.tx}` : "consumer" in event ? ` to ${event.consumer}` : "";
    return `${what} ${name}${by}  (${event.message.id})`;
  }
  const { what: _, ...rest } = event;
  return `${what} ${words(rest)}`;
}

/** The telemetry that adds something to the history and the rows. */
const worthTelling: ReadonlySet<TelemetryEvent["name"]> = new Set([
  "relay.lost",
  "relay.released",
  "relay.blocked",
  "relay.failed",
  "message.late",
  "message.suspected",
  "delivery.retried",
  "delivery.parked",
  "delivery.skipped",
  "delivery.released",
  "router.failed",
]);

function toldOf({ name, ...rest }: TelemetryEvent): string {
  return `${name} ${words(rest)}`;
}

function words(fields: object): string {
  return Object.entries(fields)
    .filter(([name]) => name !== "box")
    .map(([name, value]) => `${name}=${value instanceof Error ? value.message : text(value)}`)
    .join(" ");
}

function text(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}
