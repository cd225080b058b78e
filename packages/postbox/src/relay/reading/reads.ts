import type { Row } from "../../store.js";

/**
 * What reads that are under way may still bring. A read shows its lanes as they were at some moment after it began, and so
 * perhaps a row as it was before its settle. Reads are numbered in the order in which they began, and what is settled is
 * remembered for as long as one is under way that may not know.
 */
export interface Reads {
  /** Begins a read: its number. */
  begin(): number;
  end(read: number): void;
  /** The last one that has begun. Whatever is stored now, all later ones show. */
  readonly last: number;
  readonly underWay: boolean;
  /** Whether one is under way that began no later than this one. */
  isUnderWayUpTo(read: number): boolean;
  /** This row's settle has committed. */
  settled(row: Row): void;
  /** Whether a row that this read has brought was settled meanwhile: it may have moved on. */
  isPast(row: Row, read: number): boolean;
  /** The positions of a lane that are remembered so. */
  past(lane: number): Iterable<number>;
}

export function createReads(): Reads {
  const active = new Set<number>();
  let last = 0;
  /** By lane and position, the last read that may show it as it was. A later one shows where it is now, and it may wait. */
  const gone = new Map<number, Map<number, number>>();
  let inOrder: { readonly read: number; readonly lane: number; readonly position: number }[] = [];

  return {
    begin() {
      active.add(++last);
      return last;
    },
    end(read) {
      active.delete(read);
      const oldest = Math.min(...active, last + 1);
      const over = inOrder.findIndex((entry) => entry.read >= oldest);
      for (const { read, lane, position } of over === -1 ? inOrder : inOrder.slice(0, over)) {
        if (gone.get(lane)?.get(position) === read) gone.get(lane)?.delete(position);
      }
      inOrder = over === -1 ? [] : inOrder.slice(over);
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
      const found = gone.get(lane) ?? new Map();
      gone.set(lane, found.set(position, last));
      inOrder.push({ read: last, lane, position });
    },
    isPast: ({ lane, position }, read) => (gone.get(lane)?.get(position) ?? 0) >= read,
    past: (lane) => gone.get(lane)?.keys() ?? [],
  };
}
