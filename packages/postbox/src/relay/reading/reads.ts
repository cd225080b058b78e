import type { Row } from "../../store.js";

/**
 * Which reads are in progress, and what they may still bring. A read shows its lanes as they were at some moment after
 * it began, so perhaps a row as it was before its settle. Reads are numbered in the order in which they began. What is
 * settled is remembered as long as a read is in progress that may not show it.
 */
export interface Reads {
  /** Begins a read and returns its number. */
  begin(): number;
  end(read: number): void;
  /** The last read that has begun. Whatever is stored now, all later reads show. */
  readonly last: number;
  readonly underWay: boolean;
  /** Whether a read is in progress that began no later than this one. */
  isUnderWayUpTo(read: number): boolean;
  /** The settle of this row has committed. */
  settled(row: Row): void;
  /** Whether a row of this read was settled since the read began: it may have moved. */
  isPast(row: Row, read: number): boolean;
  /** The positions of a lane that are remembered as settled. */
  past(lane: number): Iterable<number>;
}

/** The rows that were settled while this was the last read that had begun: a lane and a position for each. */
interface SettledDuring {
  readonly read: number;
  readonly lanes: number[];
  readonly positions: number[];
}

export function createReads(): Reads {
  const active = new Set<number>();
  let last = 0;
  /**
   * By lane and position, the last read that may show the row as it was before. Later reads show its new place, such as
   * `wait`.
   */
  const gone = new Map<number, Map<number, number>>();
  /** The same, in the order of these reads. */
  let inOrder: SettledDuring[] = [];

  return {
    begin() {
      active.add(++last);
      return last;
    },
    end(read) {
      active.delete(read);
      const oldest = Math.min(...active, last + 1);
      let over = 0;
      for (const { read, lanes, positions } of inOrder) {
        if (read >= oldest) break;
        over++;
        for (let index = 0; index < lanes.length; index++) {
          const [lane, position] = [lanes[index] as number, positions[index] as number];
          const found = gone.get(lane);
          if (found?.get(position) === read) found.delete(position);
        }
      }
      if (over > 0) inOrder = inOrder.slice(over);
    },
    get last() {
      return last;
    },
    get underWay() {
      return active.size > 0;
    },
    isUnderWayUpTo(read) {
      for (const one of active) if (one <= read) return true;
      return false;
    },
    settled({ lane, position }) {
      if (active.size === 0) return;
      const found = gone.get(lane);
      if (found === undefined) gone.set(lane, new Map([[position, last]]));
      else found.set(position, last);
      if (inOrder.at(-1)?.read !== last) inOrder.push({ read: last, lanes: [], positions: [] });
      const { lanes, positions } = inOrder.at(-1) as SettledDuring;
      lanes.push(lane);
      positions.push(position);
    },
    isPast: ({ lane, position }, read) => (gone.get(lane)?.get(position) ?? 0) >= read,
    past: (lane) => gone.get(lane)?.keys() ?? [],
  };
}
