import { PostboxError } from "../../errors.js";
import type { Row } from "../../store.js";
import type { SendOutcome } from "../target.js";

/*
 * A poison message may crash the process or lose the connection, and would do so again with every redelivery. So each
 * crash is counted against the messages in flight before they are sent again. One crash may be chance: the message is
 * sent as before. From the second crash on, it is sent with nothing else in flight, so that the next crash identifies
 * the cause.
 */

/** From this many crashes on, a row is sent alone. */
export const aloneFrom = 2;
/**
 * From this many crashes on, a row is not sent at all. It was alone in the last two: a process may crash once for
 * another reason.
 */
const hopelessFrom = 4;

/** The outcome of a row that must not be sent any more. */
export function hopeless(row: Row): SendOutcome | undefined {
  if (row.crashes < hopelessFrom) return undefined;
  const text =
    `it was in flight ${row.crashes} times when the process crashed or the connection was lost, ` +
    "the last two times alone; find out what it does to the sender, or to its handler, before you send it again";
  return { status: "rejected", error: new PostboxError("message-suspect", text) };
}

/** Suspects the first rows of lanes whose owner crashed: any of them may have been in flight then. */
export interface Suspicion {
  /** These lanes were taken together from an owner that crashed. */
  add(lanes: readonly number[]): void;
  remove(lane: number): void;
  /**
   * In the first read of these lanes since they were taken, this was the last position drawn: later rows were never in
   * flight.
   */
  bound(lanes: readonly number[], drawn: number): void;
  /** Returns the row, with one crash more if it is a suspect. Call it once for each row. */
  mark(row: Row): Row;
}

/**
 * `most` is how many rows an owner can have in flight, or sent but not settled, in all its lanes together. Those are
 * the first rows of their lanes, and lanes are read evenly: so they are among the first `most` rows that are read.
 *
 * A row that has crashes already is suspected again, and does not count towards `most`. Otherwise rows that cannot be
 * sent would hide the one that causes the crash.
 */
export function createSuspicion(most: number): Suspicion {
  /**
   * By lane: how many more rows to suspect, shared by lanes that were taken together, and up to which position, once
   * that is known.
   */
  const left = new Map<number, { readonly shared: { count: number }; upTo: number | undefined }>();
  return {
    add(lanes) {
      const shared = { count: most };
      for (const lane of lanes) left.set(lane, { shared, upTo: undefined });
    },
    remove: (lane) => void left.delete(lane),
    bound(lanes, drawn) {
      if (left.size === 0) return;
      for (const lane of lanes) {
        const found = left.get(lane);
        if (found !== undefined) found.upTo ??= drawn;
      }
    },
    mark(row) {
      const found = left.get(row.lane);
      if (found === undefined || row.position > (found.upTo ?? row.position)) return row;
      const { shared } = found;
      if (row.crashes === 0 && shared.count === 0) return row;
      if (row.crashes === 0) shared.count--;
      return { ...row, crashes: row.crashes + 1 };
    },
  };
}

/**
 * Decides which connection losses count against the messages in flight. If messages were sent since the last loss, it
 * counts.
 *
 * Otherwise the broker may be dropping every connection. Then messages are sent one at a time, those that have no
 * crashes first, and one loss in five counts against the same message.
 */
export interface Doubt {
  /** Whether a message was sent since the last connection loss. */
  readonly none: boolean;
  /** A message was sent. */
  sent(): void;
  /** The connection was lost with these rows in flight. Returns whether that counts against them. */
  died(rows: readonly Row[]): boolean;
}

const oneIn = 5;

export function createDoubt(): Doubt {
  let none = true;
  /** Connection losses that did not count, by the row that was in flight alone. */
  const deaths = new Map<string, number>();
  return {
    get none() {
      return none;
    },
    sent() {
      if (none) return;
      none = true;
      deaths.clear();
    },
    died(rows) {
      const counts = none;
      none = false;
      const [row] = rows;
      if (counts || row === undefined) return counts;
      const name = `${row.lane} ${row.position}`;
      const count = (deaths.get(name) ?? 0) + 1;
      deaths.set(name, count % oneIn);
      return count === oneIn;
    },
  };
}
