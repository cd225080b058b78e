import type { Runtime } from "../../internal/runtime.js";
import { createWake, type Wake } from "../../internal/wake.js";
import type { Box, LateRow, Row, WriterRange } from "../../store.js";
import type { Telemetry } from "../../telemetry/events.js";
import type { Arrival, Window } from "../ordering/window.js";
import type { ReadLane } from "./lanes.js";
import { merged, within, without } from "./writer-ranges.js";

export interface LateCommitsOptions {
  readonly box: Box;
  readonly boxName: string;
  readonly window: Window;
  readonly batchSize: number;
  /** How many bytes one read may bring. */
  maxBytes(): number;
  readonly runtime: Runtime;
  readonly telemetry: Telemetry;
  lanes(): readonly ReadLane[];
  /** Of rows that were asked for of these lanes, those of lanes that are still the same. */
  stillAsked<R extends Row>(asked: readonly ReadLane[], rows: readonly R[]): readonly R[];
  /** Whether the window should take in no more for now. */
  isFull(): boolean;
  failed(error: unknown, failures: number): number;
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
  takeIn(open: readonly WriterRange[], highest: number, signal: AbortSignal): Promise<number>;
  /** Positions mean other messages now: forgets every transaction that was seen. */
  forget(): void;
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

type IsWhole = (open: readonly WriterRange[]) => boolean;

/** Transactions that were open, and the highest position that was found before they were first seen. */
interface OpenSince extends WriterRange {
  readonly since: number;
}

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
  let openSince: readonly OpenSince[] = [];
  /** Transactions that have ended and appended nothing. A read in progress may still show them as open. */
  let harmless: WriterRange[] = [];

  /** `isWhole` judges, by the transactions that were open, whether its rows may be taken in. */
  async function page(asked: readonly ReadLane[], after: number, upTo: number, isWhole: IsWhole) {
    const read = window.beginRead();
    let found: readonly LateRow[] = [];
    let rows: readonly LateRow[] = [];
    let more = false;
    let arrival: Arrival;
    try {
      const gaps = asked.map(({ lane, cursor }) => {
        const end = Math.min(cursor, upTo);
        return { lane, after, upTo: end, known: window.known(lane, after, end) };
      });
      const answer = await box.late(gaps, mostAtOnce, { maxBytes: options.maxBytes() });
      found = answer.rows;
      more = answer.more;
      if (isWhole(answer.open)) rows = options.stillAsked(asked, found);
    } finally {
      arrival = window.endRead(read, rows);
    }
    for (const { message, ageMs } of rows) telemetry({ name: "message.late", box: boxName, id: message.id, ageMs });
    if (arrival.fresh > 0) options.arrived(arrival.held);
    return { fresh: arrival.fresh, more: more ? found.at(-1)?.position : undefined };
  }

  /**
   * Takes in what is unknown beyond a position; the transactions `ended` are known to have ended, those in `openSince` may end meanwhile.
   * Page by page, from the lowest position on: a transaction may have left more than one statement, or the window, should
   * hold. Pages are as wide as they are quick, since what is deleted and not vacuumed away costs time too.
   */
  async function look(after: number, ended: readonly WriterRange[], wake: Wake, signal: AbortSignal): Promise<number> {
    let [fresh, from, width] = [0, after, firstWidth];
    let seenEnd = ended;
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
        const endedNow = without(without(openSince, open), seenEnd);
        seenEnd = merged<WriterRange>(seenEnd, endedNow);
        for (const { since } of endedNow) lowest = Math.min(lowest, since);
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
      const ended = without(openSince, open);
      let after = Number.POSITIVE_INFINITY;
      for (const { since } of ended) after = Math.min(after, since);
      const found = await look(after, ended, room, signal);
      // A transaction that is new here began after the last read, so it drew its positions after those that that one saw.
      const known = within(openSince, open);
      const fresh = without(without(open, known), harmless).map((range) => ({ ...range, since: highest }));
      openSince = merged(known, fresh);
      // No read that begins from now on shows them.
      harmless = [];
      return found;
    },
    forget() {
      openSince = [];
      harmless = [];
    },
    appendedNothing(transaction) {
      const range = { from: transaction, to: transaction + 1 };
      openSince = without(openSince, [range]);
      harmless = merged(without(harmless, [range]), [range]);
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
          pauseMs = Math.max(options.failed(error, 1), shortestIntervalMs);
        }
      }
    },
  };
}
