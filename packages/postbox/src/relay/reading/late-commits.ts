import { createWake, type Wake } from "../../internal/wake.js";
import type { LateRow, Row, Writers } from "../../store.js";
import type { DrainContext } from "../context.js";
import type { Arrival, Window } from "../ordering/window.js";
import type { Lanes } from "./lanes.js";

export interface LateCommitsOptions
  extends Pick<DrainContext, "box" | "boxName" | "batchSize" | "runtime" | "telemetry"> {
  readonly window: Window;
  readonly lanes: Lanes;
  /** How many bytes one read may return. */
  maxBytes(): number;
  /** Whether the window should accept no more rows for now. */
  isFull(): boolean;
  failed(error: unknown, failures: number): number;
  arrived(held: readonly Row[]): void;
}

/** Writers in progress, and the highest position that was found before a read first saw them. */
interface Seen {
  readonly writers: Writers;
  readonly since: number;
}

/** The progress of one inspection, page by page. */
interface Inspection {
  /** Everything up to this position is inspected. */
  from: number;
  /**
   * The writers in progress at the last page. Their rows are above the positions at which they were first seen. Absent:
   * all writers ever seen.
   */
  base: Writers | undefined;
  /** How many positions a page covers. */
  width: number;
}

/** A full inspection may take one part in `patience` of the time: its interval is this many times its duration. */
const patience = 20;
const shortestIntervalMs = 60_000;
/** How many positions the first page covers, and how long a page may take before the next one covers fewer. */
const firstWidth = 100_000;
const longestPageMs = 250;

/**
 * Finds rows that commit below positions that were already read, since positions are given before commit. The writers
 * in progress tell when and where to look: a row of a writer is above every position that was found before that writer
 * was first seen.
 */
export class LateCommits {
  readonly #options: LateCommitsOptions;
  readonly #mostAtOnce: number;
  readonly #room: Wake;
  readonly #sweepRoom: Wake;
  #seen: readonly Seen[] = [];
  /** Writers that have ended and appended nothing. The read in progress may still report them. */
  #harmless: Writers[] = [];

  constructor(options: LateCommitsOptions) {
    this.#options = options;
    this.#mostAtOnce = 4 * options.batchSize;
    [this.#room, this.#sweepRoom] = [createWake(options.runtime), createWake(options.runtime)];
  }

  /** A read begins: no writer that has ended by now is in progress for it. */
  begins(): void {
    this.#harmless = [];
  }

  /**
   * Accepts the rows of writers that were in progress at an earlier read and have ended. `highest` is the highest
   * position that was found before this read. Returns how many rows these were.
   */
  async takeIn(writers: Writers, highest: number, signal: AbortSignal): Promise<number> {
    const after = this.#lowestLeft(undefined, writers);
    const found = await this.#inspect({ from: after, base: writers, width: firstWidth }, this.#room, signal);
    this.#seen = withoutEmpty(this.#seen.map((seen) => ({ ...seen, writers: common(seen.writers, writers) })));
    // A writer that is new here began after the last read, so it drew its positions after those that that read found.
    let fresh = writers;
    for (const known of [...this.#seen.map((seen) => seen.writers), ...this.#harmless]) fresh = fresh.without(known);
    if (!fresh.none) this.#seen = [...this.#seen, { writers: fresh, since: highest }];
    return found;
  }

  /** Positions may belong to other messages now: forgets every writer that was seen. */
  forget(): void {
    this.#seen = [];
    this.#harmless = [];
  }

  /** This writer has ended and appended nothing, so it needs no inspection. */
  appendedNothing(writer: Writers): void {
    this.#seen = withoutEmpty(this.#seen.map((seen) => ({ ...seen, writers: seen.writers.without(writer) })));
    this.#harmless.push(writer);
  }

  /** There may be room in the window again. */
  roomLeft(): void {
    this.#room.wake();
    this.#sweepRoom.wake();
  }

  /**
   * Inspects all positions now and then, for rows that no list of writers reveals, such as one that was inserted by
   * hand. An inspection walks over every row that was settled and is not vacuumed yet.
   */
  async sweep(signal: AbortSignal): Promise<void> {
    const { runtime, failed } = this.#options;
    const never = createWake(runtime);
    let pauseMs = shortestIntervalMs;
    while (!signal.aborted) {
      await never.wait(signal, pauseMs);
      if (signal.aborted) return;
      const startedAt = runtime.monotonic();
      try {
        await this.#inspect({ from: 0, base: undefined, width: firstWidth }, this.#sweepRoom, signal);
        pauseMs = Math.max(patience * (runtime.monotonic() - startedAt), shortestIntervalMs);
      } catch (error) {
        pauseMs = Math.max(failed(error, 1), shortestIntervalMs);
      }
    }
  }

  /**
   * The position above which writers may have left rows that were in progress at `base` and are not in `now`; infinite
   * if there are none.
   */
  #lowestLeft(base: Writers | undefined, now: Writers): number {
    let lowest = Number.POSITIVE_INFINITY;
    for (const { writers, since } of this.#seen) {
      const before = base === undefined ? writers : common(writers, base);
      if (since < lowest && !before.without(now).none) lowest = since;
    }
    return lowest;
  }

  /**
   * Accepts the unknown rows, from the lowest position up, since a writer may have left more than one statement, or the
   * window, can hold. A slow page halves the width of the next one: rows that are deleted and not vacuumed yet cost
   * time too. Returns how many rows it accepted.
   */
  async #inspect(inspection: Inspection, wake: Wake, signal: AbortSignal): Promise<number> {
    let fresh = 0;
    while (!signal.aborted && this.#options.lanes.all.some(({ cursor }) => cursor > inspection.from)) {
      if (this.#options.isFull()) await wake.wait(signal);
      else fresh += await this.#page(inspection);
    }
    return fresh;
  }

  async #page(inspection: Inspection): Promise<number> {
    const { box, boxName, window, lanes, runtime, telemetry, arrived, maxBytes } = this.#options;
    const { from, width } = inspection;
    const startedAt = runtime.monotonic();
    const asked = lanes.all.filter(({ cursor }) => cursor > from);
    const read = window.beginRead();
    let rows: readonly LateRow[] = [];
    let end: number | undefined;
    let arrival: Arrival;
    try {
      const gaps = asked.map(({ lane, cursor }) => {
        const upTo = Math.min(cursor, from + width);
        return { lane, after: from, upTo, known: window.known(lane, from, upTo) };
      });
      const found = await box.late(gaps, this.#mostAtOnce, { maxBytes: maxBytes() });
      end = found.more ? found.rows.at(-1)?.position : undefined;
      // A writer that has just ended may have left rows below this page. Then the inspection goes back, or the rows in
      // this page would be accepted first.
      const lowest =
        found.writers === undefined ? from : Math.min(from, this.#lowestLeft(inspection.base, found.writers));
      inspection.base = found.writers;
      inspection.from = lowest;
      if (lowest === from) rows = lanes.still(asked, found.rows);
    } finally {
      arrival = window.endRead(read, rows);
    }
    for (const { message, ageMs } of rows) telemetry({ name: "message.late", box: boxName, id: message.id, ageMs });
    if (arrival.fresh > 0) arrived(arrival.held);
    if (inspection.from === from) this.#goOn(inspection, end, runtime.monotonic() - startedAt);
    return arrival.fresh;
  }

  /** `end`: the page reached its limit at this position. */
  #goOn(inspection: Inspection, end: number | undefined, tookMs: number): void {
    const { from, width } = inspection;
    const least = this.#mostAtOnce;
    inspection.from = end ?? from + width;
    if (end !== undefined) inspection.width = Math.max(least, 2 * (end - from));
    else inspection.width = tookMs > longestPageMs ? Math.max(least, Math.floor(width / 2)) : 2 * width;
  }
}

function common(some: Writers, others: Writers): Writers {
  return some.without(some.without(others));
}

function withoutEmpty(seen: readonly Seen[]): readonly Seen[] {
  return seen.filter(({ writers }) => !writers.none);
}
