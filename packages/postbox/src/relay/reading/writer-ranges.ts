import type { WriterRange } from "../../store.js";

/*
 * Writers in progress, as ascending ranges that do not overlap: a bulk load may have hundreds of thousands of numbers, which a
 * list would not bear. Both functions walk through the two lists once.
 */

/** What of `ranges` is not in `others`; each part keeps what its range carries. */
export function without<R extends WriterRange>(ranges: readonly R[], others: readonly WriterRange[]): R[] {
  const left: R[] = [];
  let next = 0;
  for (const range of ranges) {
    let from = range.from;
    while ((others[next]?.to ?? Number.POSITIVE_INFINITY) <= from) next++;
    for (let index = next; from < range.to; index++) {
      const other = others[index];
      if (other === undefined || other.from >= range.to) {
        left.push({ ...range, from });
        break;
      }
      if (other.from > from) left.push({ ...range, from, to: other.from });
      from = Math.max(from, other.to);
    }
  }
  return left;
}

/** What of `ranges` is also in `others`; each part keeps what its range carries. */
export function within<R extends WriterRange>(ranges: readonly R[], others: readonly WriterRange[]): R[] {
  return without(ranges, without(ranges, others));
}

/** Both in one list; of two that share no number. */
export function merged<R extends WriterRange>(ranges: readonly R[], more: readonly R[]): R[] {
  return [...ranges, ...more].sort((a, b) => a.from - b.from);
}
