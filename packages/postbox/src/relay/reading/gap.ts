import type { Row, Writers } from "../../store.js";

/**
 * Where a total order has to stop. A missing position may belong to a writer in progress. Nothing above it passes until
 * it appears, or until every writer has ended that was in progress when a later position was found. Then it was rolled
 * back.
 */
export class Gap {
  /** No more rows can appear up to this position. */
  #closed = 0;
  /** When all of these writers have ended, every position up to `upTo` is closed. */
  #waitsFor: { readonly upTo: number; readonly writers: Writers } | undefined;

  /**
   * Returns how many of these rows pass, and whether the rest is blocked by a gap, perhaps a new one. `rows` is
   * everything that was found above `after`, up to `upTo`, in order; `writers` were in progress then.
   */
  pass(rows: readonly Row[], after: number, upTo: number, writers: Writers): Passed {
    if (this.#waitsFor !== undefined && haveEnded(this.#waitsFor.writers, writers)) {
      this.#close(this.#waitsFor.upTo);
      this.#waitsFor = undefined;
    }
    if (writers.none) this.#close(upTo);
    let passed = after;
    for (const [count, { position }] of rows.entries()) {
      if (position > passed + 1 && position > this.#closed) {
        // The gap that it waited for may have been filled; then this is another one.
        const isNew = (this.#waitsFor?.upTo ?? 0) <= passed;
        if (isNew) this.#waitsFor = { upTo, writers };
        this.#close(passed);
        return { count, blocked: isNew ? "newly" : "still" };
      }
      passed = position;
    }
    this.#close(passed);
    return { count: rows.length };
  }

  #close(upTo: number): void {
    this.#closed = Math.max(this.#closed, upTo);
  }
}

/** Whether all of `writers` have ended, if `now` are in progress now. */
function haveEnded(writers: Writers, now: Writers): boolean {
  return writers.without(writers.without(now)).none;
}

interface Passed {
  readonly count: number;
  readonly blocked?: "newly" | "still";
}
