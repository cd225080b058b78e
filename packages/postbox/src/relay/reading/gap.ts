import type { Row, Writers } from "../../store.js";

/**
 * Where a total order has to stop. A position that is missing may belong to a writer in progress. Nothing beyond it goes on until it
 * appears, or until every writer has ended that was in progress when a later position was found: then it was rolled back.
 */
export class Gap {
  /** No row can appear up to here that was not found. */
  #closed = 0;
  /** When all of these have ended, everything up to `upTo` is closed. */
  #waitsFor: { readonly upTo: number; readonly writers: Writers } | undefined;

  /**
   * How many of these rows may go on, and whether the rest has to wait for a gap, perhaps a new one. They are all that was found
   * beyond `after` and up to `upTo`, in order, and these writers were in progress then.
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
        // One that it waited for may be filled: then this is another one.
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

/** Whether all of these have ended, if those are in progress now. */
function haveEnded(writers: Writers, now: Writers): boolean {
  return writers.without(writers.without(now)).none;
}

interface Passed {
  readonly count: number;
  readonly blocked?: "newly" | "still";
}
