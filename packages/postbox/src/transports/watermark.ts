/**
 * The progress of a stream whose broker acknowledges by offset: everything below the watermark is done. Offsets start
 * in ascending order, with gaps, and finish in any order. The watermark never passes an unfinished offset.
 */
export interface Watermark {
  /** The lowest offset that is not known to be done, which a broker may commit. */
  readonly at: number;
  /** How many offsets above the watermark were started, finished or not. */
  readonly size: number;
  /** An offset was delivered. It must be above all earlier ones. */
  start(offset: number): void;
  /** It is done. Has no effect unless it was started and is not finished yet. */
  finish(offset: number): void;
}

/**
 * `from` is the first offset that is not done. Each call takes O(1) amortised, or O(log n) if offsets have gaps.
 *
 * @example
 * ```ts
 * const watermark = createWatermark(100);
 * watermark.start(100);
 * watermark.start(101);
 * watermark.finish(101); // watermark.at is still 100
 * watermark.finish(100); // and now 102
 * ```
 */
export function createWatermark(from: number): Watermark {
  // A window of the started offsets: those before `head` are done and below the watermark.
  let started: number[] = [];
  let finished: boolean[] = [];
  let head = 0;
  let at = from;

  function placeOf(offset: number): number {
    const first = started[head];
    if (first === undefined || offset < first) return -1;
    const [dense, last] = [head + offset - first, started.length - 1];
    // Without gaps, which is the usual case, an offset gives its own index.
    if (started[dense] === offset) return dense;
    let [low, high] = [head, Math.min(dense, last)];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((started[middle] as number) < offset) low = middle + 1;
      else high = middle;
    }
    return started[low] === offset ? low : -1;
  }

  function advance(): void {
    while (head < started.length && finished[head]) at = (started[head++] as number) + 1;
    // Finished offsets are removed once they are the larger part: moving the rest each time would cost more.
    if (head > 64 && head * 2 > started.length) {
      started = started.slice(head);
      finished = finished.slice(head);
      head = 0;
    }
  }

  return {
    get at() {
      return at;
    },
    get size() {
      return started.length - head;
    },
    start(offset) {
      const last = started.at(-1) ?? at - 1;
      if (offset <= last) throw new RangeError(`offset ${offset} was started after ${last}; start offsets in order`);
      started.push(offset);
      finished.push(false);
    },
    finish(offset) {
      const place = placeOf(offset);
      if (place === -1) return;
      finished[place] = true;
      advance();
    },
  };
}
