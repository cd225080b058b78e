import { PostboxError } from "../../errors.js";
import type { OpenTransaction } from "./memory-transaction.js";

/** Which transaction waits for which. A wait that would close a cycle rolls its transaction back, as in a database. */
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
    // Its function may have returned without awaiting this call.
    tx.check();
  }
}
