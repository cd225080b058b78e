import { createWake, type Wake } from "../../internal/wake.js";
import type { LateRow, Row, Writers } from "../../store.js";
import type { DrainContext } from "../context.js";
import type { Arrival, Window } from "../ordering/window.js";
import type { Lanes } from "./lanes.js";

export interface LateCommitsOptions
  extends Pick<DrainContext, "box" | "boxName" | "batchSize" | "runtime" | "telemetry"> {
  readonly window: Window;
  readonly lanes: Lanes;
  /** How many bytes one read may bring. */
  maxBytes(): number;
  /** Whether the window should take in no more for now. */
  isFull(): boolean;
  failed(error: unknown, failures: number): number;
  arrived(held: readonly Row[]): void;
}

/** Writers in progress, and the highest position that was found before a read first told of them. */
interface Seen {
  readonly writers: Writers;
  readonly since: number;
}

/** How one inspection goes on, page by page. */
interface Inspection {
  /** It has got so far. */
  from: number;
  /** The writers in progress when it last knew: what they leave is above where they were first seen. Absent: all that were seen. */
  base: Writers | undefined;
  /** How many positions a page covers. */
  width: number;
}

/** The share of time that inspecting everything may take: its interval is so many times its cost. */
const patience = 20;
const shortestIntervalMs = 60_000;
/** How many positions the first page covers, and how long one may take before the next covers fewer. */
const firstWidth = 100_000;
const longestPageMs = 250;

/**
 * Finds rows that commit below what was read: positions are given before commit. Which writers are in progress tells when and where to
 * look: a row that one of them leaves is above every position that was found before that writer was first seen.
 */
export class LateCommits {
  readonly #options: LateCommitsOptions;
  readonly #mostAtOnce: number;
  readonly #room: Wake;
  readonly #sweepRoom: Wake;
  #seen: readonly Seen[] = [];
  /** Writers that have ended and appended nothing. The read in progress may still tell of them. */
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
   * Takes in what those writers have left that were in progress at an earlier read, and are no longer. `highest` is the highest
   * position that was found before this read. Answers how many rows that were.
   */
  async takeIn(writers: Writers, highest: number, signal: AbortSignal): Promise<number> {
    const after = this.#lowestLeft(undefined, writers);
    const found = await this.#inspect({ from: after, base: writers, width: firstWidth }, this.#room, signal);
    this.#seen = withoutEmpty(this.#seen.map((seen) => ({ ...seen, writers: common(seen.writers, writers) })));
    // Those that are new here began after the last read, so they drew their positions after the ones that it found.
    let fresh = writers;
    for (const known of [...this.#seen.map((seen) => seen.writers), ...this.#harmless]) fresh = fresh.without(known);
    if (!fresh.none) this.#seen = [...this.#seen, { writers: fresh, since: highest }];
    return found;
  }

  /** Positions mean other messages now: forgets every writer that was seen. */
  forget(): void {
    this.#seen = [];
    this.#harmless = [];
  }

  /** This writer, which has ended, is no reason to look. */
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
   * Inspects everything now and then, for what no list of writers tells of, such as a row that was written by hand. It walks over
   * every row that was settled and is not vacuumed away yet.
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

  /** Above which position a writer may have left something that was in progress at `base` and is not among `now`; infinite: none. */
  #lowestLeft(base: Writers | undefined, now: Writers): number {
    let lowest = Number.POSITIVE_INFINITY;
    for (const { writers, since } of this.#seen) {
      const before = base === undefined ? writers : common(writers, base);
      if (since < lowest && !before.without(now).none) lowest = since;
    }
    return lowest;
  }

  /**
   * Takes in what is not known, from the lowest position on: a writer may have left more than one statement, or the window, should
   * hold. Pages are as wide as they are quick, since rows that are deleted and not vacuumed away cost time too. Answers how many rows.
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
      // A writer that has ended only now may have left something below this page: then it begins there, or what that one left here
      // would be taken in first.
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

  /** `end`: the page ended there, since there was too much. */
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
