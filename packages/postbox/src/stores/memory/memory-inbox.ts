import type { OpenTransaction } from "./memory-transaction.js";
import type { MemoryWaits } from "./memory-waits.js";

/**
 * What consumers have handled: a unique index on (consumer, message id) with the locks that a database puts on it.
 * A row that is not committed yet makes the next one to insert it wait until its transaction has ended.
 */
export class MemoryInbox {
  readonly #rows = new Map<string, OpenTransaction>();
  readonly #waits: MemoryWaits;

  constructor(waits: MemoryWaits) {
    this.#waits = waits;
  }

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
      await this.#waits.untilEnded(by, tx);
    }
  }

  everything(): readonly string[] {
    return [...this.#rows].filter(([, { committed }]) => committed).map(([row]) => row);
  }
}
