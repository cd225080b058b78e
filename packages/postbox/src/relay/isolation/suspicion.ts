import { PostboxError } from "../../errors.js";
import type { Row } from "../../store.js";
import type { SendOutcome } from "../target.js";

/*
 * A message may be the reason why a process or a connection dies: it would be sent again, and kill again, for ever. So what
 * was on its way at a death is counted before it is sent again. Once may be chance: it is sent as before. From the second
 * death on it is sent with nothing else on its way, so that the next one tells who it was.
 */

/** From here on a row is sent alone. */
export const aloneFrom = 2;
/** From here on it is not sent at all. It was alone at the last two deaths: at one, a process may die of something else. */
const hopelessFrom = 4;

/** How a row that is to be sent no more ends. */
export function hopeless(row: Row): SendOutcome | undefined {
  if (row.crashes < hopelessFrom) return undefined;
  const text =
    `it was in flight ${row.crashes} times when the process crashed or the connection was lost, the last two times alone; ` +
    "find out what it does to the sender, or to its handler, before you send it again";
  return { status: "rejected", error: new PostboxError("message-suspect", text) };
}

/** The first rows of lanes whose owner died: any of them may have been in flight then. */
export interface Suspicion {
  /** These lanes were taken together from an owner that died. */
  add(lanes: readonly number[]): void;
  remove(lane: number): void;
  /** A first read of these lanes since they were taken found this position to be the last one drawn: later rows were never in flight. */
  bound(lanes: readonly number[], drawn: number): void;
  /** The same row, with one crash more if it is under suspicion. Ask once for each row. */
  mark(row: Row): Row;
}

/**
 * `most` is how many rows an owner had in flight at most, or sent and not settled, in all its lanes together. They are the first of
 * their lanes, and lanes are read evenly: so they are among the first `most` rows that are read. A row with
 * crashes is suspected again and does not count towards `most`: otherwise rows that cannot be sent would hide the one that kills.
 */
export function createSuspicion(most: number): Suspicion {
  /** How many more, shared by lanes that were taken together; and up to which position, once that is known. */
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
 * Which deaths of connections count. One that was sound counts against what was on its way. When nothing was sent since
 * then, it may be the broker that drops every connection: messages go one at a time, those that were never at a death first,
 * and of so many deaths with the same one on its way, one counts.
 */
export interface Doubt {
  /** Whether something was sent since the last death. */
  readonly none: boolean;
  /** Something was sent. */
  sent(): void;
  /** A connection died with these rows on their way: whether that counts against them. */
  died(rows: readonly Row[]): boolean;
}

const oneIn = 5;

export function createDoubt(): Doubt {
  let none = true;
  /** Deaths in doubt, by the row that was alone on its way. */
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
