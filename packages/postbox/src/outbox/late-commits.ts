import type { Runtime } from "../internal/runtime.js";
import { createWake, type Wake } from "../internal/wake.js";
import type { Box, LateRow, Row } from "../store.js";
import type { Telemetry } from "../telemetry/events.js";
import type { Arrival, Window } from "./window.js";

/** How far a lane has been read. */
export interface LaneCursor {
  readonly lane: number;
  readonly cursor: number;
}

export interface LateCommitsOptions {
  readonly box: Box;
  readonly boxName: string;
  readonly window: Window;
  readonly batchSize: number;
  readonly runtime: Runtime;
  readonly telemetry: Telemetry;
  lanes(): readonly LaneCursor[];
  /** Of rows that were asked for of these lanes, those of lanes that are still the same. */
  stillAsked<R extends Row>(asked: readonly LaneCursor[], rows: readonly R[]): readonly R[];
  /** Whether the window should take in no more for now. */
  isFull(): boolean;
  failed(error: unknown): number;
  arrived(held: readonly Row[]): void;
}

/**
 * Positions are given before commit, so a lane may be read past one that appears later. Which transactions are open tells
 * when: what one has left is above every position that was found before it was first seen.
 */
export interface LateCommits {
  /**
   * Takes in what those have left that were open at an earlier read, and are no longer. `highest` is the highest position
   * that was found before this read. Answers how much it was.
   */
  takeIn(open: ReadonlySet<number>, highest: number, signal: AbortSignal): Promise<number>;
  /** This transaction, which has ended, is no reason to look. */
  appendedNothing(transaction: number): void;
  /** There may be room in the window again. */
  roomLeft(): void;
  /**
   * Looks all the way down, seldom: for what no list of open transactions tells, such as a row that was written by hand. It
   * walks over everything that was settled and not yet vacuumed away.
   */
  sweep(signal: AbortSignal): Promise<void>;
}

type IsWhole = (open: ReadonlySet<number>) => boolean;

/** The share of time that looking all the way down may take: its interval is so many times its cost. */
const patience = 20;
const shortestIntervalMs = 60_000;
/** How many positions the first page covers, and how long one may take before the next covers fewer. */
const firstWidth = 100_000;
const longestPageMs = 250;

export function createLateCommits(options: LateCommitsOptions): LateCommits {
  const { box, boxName, window, runtime, telemetry } = options;
  const mostAtOnce = 4 * options.batchSize;
  const [room, sweepRoom] = [createWake(runtime), createWake(runtime)];
  /** Each open transaction, and the highest position that was found before it was first seen. */
  const openSince = new Map<number, number>();
  /** Transactions that have ended and appended nothing. A read that is under way may still show them as open. */
  const harmless = new Set<number>();

  /** `isWhole` judges, by the transactions that were open, whether its rows may be taken in. */
  async function page(asked: readonly LaneCursor[], after: number, upTo: number, isWhole: IsWhole) {
    const read = window.beginRead();
    let found: readonly LateRow[] = [];
    let rows: readonly LateRow[] = [];
    let arrival: Arrival;
    try {
      const gaps = asked.map(({ lane, cursor }) => {
        const end = Math.min(cursor, upTo);
        return { lane, after, upTo: end, known: window.known(lane, after, end) };
      });
      const answer = await box.late(gaps, mostAtOnce);
      found = answer.rows;
      if (isWhole(answer.open)) rows = options.stillAsked(asked, found);
    } finally {
      arrival = window.endRead(read, rows);
    }
    for (const { message, ageMs } of rows) telemetry({ name: "message.late", box: boxName, id: message.id, ageMs });
    if (arrival.fresh > 0) options.arrived(arrival.held);
    return { fresh: arrival.fresh, more: found.length < mostAtOnce ? undefined : found.at(-1)?.position };
  }

  /**
   * Takes in what is unknown beyond a position; the transactions `ended` are known to have, those in `openSince` may end meanwhile.
   * Page by page, from the lowest position on: a transaction may have left more than one statement, or the window, should
   * hold. Pages are as wide as they are quick, since what is deleted and not vacuumed away costs time too.
   */
  async function look(after: number, ended: Iterable<number>, wake: Wake, signal: AbortSignal): Promise<number> {
    let [fresh, from, width] = [0, after, firstWidth];
    const seenEnd = new Set(ended);
    while (!signal.aborted) {
      const asked = options.lanes().filter(({ cursor }) => cursor > from);
      if (asked.length === 0) break;
      if (options.isFull()) {
        await wake.wait(signal);
        continue;
      }
      const startedAt = runtime.monotonic();
      // One that has ended only now may have left something below this page: then the look begins there, or what it left
      // here would be taken in first.
      let lowest = from;
      const found = await page(asked, from, from + width, (open) => {
        for (const [number, since] of openSince) {
          if (seenEnd.has(number) || open.has(number)) continue;
          seenEnd.add(number);
          lowest = Math.min(lowest, since);
        }
        return lowest === from;
      });
      if (lowest < from) {
        from = lowest;
        continue;
      }
      fresh += found.fresh;
      if (found.more !== undefined) width = Math.max(mostAtOnce, 2 * (found.more - from));
      from = found.more ?? from + width;
      const wasSlow = runtime.monotonic() - startedAt > longestPageMs;
      if (found.more === undefined) width = wasSlow ? Math.max(mostAtOnce, Math.floor(width / 2)) : 2 * width;
    }
    return fresh;
  }

  return {
    async takeIn(open, highest, signal) {
      const ended = [...openSince.keys()].filter((number) => !open.has(number));
      const after = Math.min(...ended.map((number) => openSince.get(number) as number));
      const found = await look(after, ended, room, signal);
      for (const number of ended) openSince.delete(number);
      // One that is new here has begun after the last read, and so has drawn its positions after those that this one saw.
      for (const number of open) {
        if (!openSince.has(number) && !harmless.has(number)) openSince.set(number, highest);
      }
      // No read that begins from now on shows them.
      harmless.clear();
      return found;
    },
    appendedNothing(transaction) {
      openSince.delete(transaction);
      harmless.add(transaction);
    },
    roomLeft() {
      room.wake();
      sweepRoom.wake();
    },
    async sweep(signal) {
      const never = createWake(runtime);
      let pauseMs = shortestIntervalMs;
      while (!signal.aborted) {
        await never.wait(signal, pauseMs);
        if (signal.aborted) return;
        const startedAt = runtime.monotonic();
        try {
          await look(0, [], sweepRoom, signal);
          pauseMs = Math.max(patience * (runtime.monotonic() - startedAt), shortestIntervalMs);
        } catch (error) {
          pauseMs = Math.max(options.failed(error), shortestIntervalMs);
        }
      }
    },
  };
}
