import { PostboxError } from "../../errors.js";
import type { OpenTransaction } from "./memory-transaction.js";

/**
 * What consumers have handled: a unique index on (consumer, message id) with the locks that a database puts on it.
 * A row that is not committed yet makes the next one to insert it wait until its transaction has ended.
 */
export class MemoryInbox {
  readonly #rows = new Map<string, OpenTransaction>();
  readonly #waitsFor = new Map<OpenTransaction, OpenTransaction>();

  async remember(tx: OpenTransaction, consumer: string, id: string): Promise<"new" | "duplicate"> {
    const row = JSON.stringify([consumer, id]);
    for (;;) {
      const by = this.#rows.get(row);
      if (by === undefined) {
        this.#rows.set(row, tx);
        tx.onRollback(() => this.#rows.delete(row));
        return "new";
      }
      if (by === tx || by.committed) return "duplicate";
      await this.#wait(tx, by);
    }
  }

  async #wait(tx: OpenTransaction, by: OpenTransaction): Promise<void> {
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
