import type { Writers } from "../store.js";

/** Transaction numbers from `from` up to, but not including, `to`. */
export interface WriterRange {
  readonly from: number;
  readonly to: number;
}

/**
 * Writers in progress, for stores whose transactions have numbers, as ascending ranges that do not overlap. A bulk load
 * may have hundreds of thousands of transactions, too many for a list.
 */
export class WriterRanges implements Writers {
  readonly ranges: readonly WriterRange[];

  constructor(ranges: readonly WriterRange[]) {
    this.ranges = ranges;
  }

  /** The transaction with this number. */
  static one(number: number): WriterRanges {
    return new WriterRanges([{ from: number, to: number + 1 }]);
  }

  get none(): boolean {
    return this.ranges.length === 0;
  }

  without(others: Writers): WriterRanges {
    if (!(others instanceof WriterRanges))
      throw new TypeError("writers of another store cannot be compared with these");
    return this.none || others.none ? this : new WriterRanges(difference(this.ranges, others.ranges));
  }
}

/** The parts of `ranges` that are not in `others`, in one pass over both lists. */
function difference(ranges: readonly WriterRange[], others: readonly WriterRange[]): WriterRange[] {
  const left: WriterRange[] = [];
  let next = 0;
  for (const range of ranges) {
    let from = range.from;
    while ((others[next]?.to ?? Number.POSITIVE_INFINITY) <= from) next++;
    for (let index = next; from < range.to; index++) {
      const other = others[index];
      if (other === undefined || other.from >= range.to) {
        left.push({ from, to: range.to });
        break;
      }
      if (other.from > from) left.push({ from, to: other.from });
      from = Math.max(from, other.to);
    }
  }
  return left;
}
