import { PostboxError } from "../../errors.js";
import type { OpenTransaction } from "./memory-transaction.js";

/** Who waits for whose end. Whoever would close a circle is rolled back instead, as a database does. */
export class MemoryWaits {
  readonly #waitsFor = new Map<OpenTransaction, OpenTransaction>();

  /** Resolves when `by` has ended. */
  async untilEnded(by: OpenTransaction, tx: OpenTransaction): Promise<void> {
    for (let next: OpenTransaction | undefined = by; next !== undefined; next = this.#waitsFor.get(next)) {
      if (next !== tx) continue;
      tx.rollback();
      throw new PostboxError(
        "transaction-conflict",
        "two transactions wait for each other, so this one was rolled back; run it again",
      );
    }
    this.#waitsFor.set(tx, by);
    await by.ended;
    this.#waitsFor.delete(tx);
    // Its own function may have returned without awaiting this.
    tx.check();
  }
}
