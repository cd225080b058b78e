import type { Row, WriterRange } from "../../store.js";
import { within } from "./writer-ranges.js";

/**
 * Where a total order has to stop. A position that is missing may belong to a transaction that is still open. Nothing beyond it goes
 * on until it appears, or until every transaction has ended that was open when a later position was found: then it was rolled back.
 */
export class Gap {
  /** No row can appear up to here that was not found. */
  #closed = 0;
  /** When all of these transactions have ended, everything up to `upTo` is closed. */
  #waitsFor: { readonly upTo: number; readonly open: readonly WriterRange[] } | undefined;

  /**
   * How many of these rows may go on, and whether the rest has to wait for a gap, perhaps a new one. They are all that was found
   * beyond `after` and up to `upTo`, in order, and these transactions were open then.
   */
  pass(rows: readonly Row[], after: number, upTo: number, open: readonly WriterRange[]): Passed {
    if (this.#waitsFor !== undefined && within(this.#waitsFor.open, open).length === 0) {
      this.#close(this.#waitsFor.upTo);
      this.#waitsFor = undefined;
    }
    if (open.length === 0) this.#close(upTo);
    let passed = after;
    for (const [count, { position }] of rows.entries()) {
      if (position > passed + 1 && position > this.#closed) {
        // One that it waited for may be filled: then this is another one.
        const isNew = (this.#waitsFor?.upTo ?? 0) <= passed;
        if (isNew) this.#waitsFor = { upTo, open };
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

interface Passed {
  readonly count: number;
  readonly blocked?: "newly" | "still";
}
