import type { ScheduleKey } from "../rows/scheduled-rows.js";
import type { OpenTransaction } from "./memory-transaction.js";
import type { MemoryWaits } from "./memory-waits.js";

/** Serializes transactions that write to the same key. Each holds the lock until it ends. */
export class MemoryKeyLocks {
  readonly #holders = new Map<string, OpenTransaction>();
  readonly #waits: MemoryWaits;

  constructor(waits: MemoryWaits) {
    this.#waits = waits;
  }

  /** Whether an open transaction holds one of these locks. */
  isLocked(box: string, keys: readonly string[]): boolean {
    return keys.some((key) => this.#holders.get(nameOf(box, key))?.open === true);
  }

  /** Resolves when `tx` holds all of these locks. They are taken in a fixed order, so that two calls never deadlock. */
  async lock(tx: OpenTransaction, box: string, keys: readonly string[]): Promise<void> {
    for (const key of [...new Set(keys)].sort()) await this.#lock(tx, nameOf(box, key));
  }

  async #lock(tx: OpenTransaction, name: string): Promise<void> {
    for (let holder = this.#holders.get(name); holder !== tx; holder = this.#holders.get(name)) {
      if (holder !== undefined) {
        await this.#waits.untilEnded(holder, tx);
        continue;
      }
      this.#holders.set(name, tx);
      void tx.ended.then(() => this.#holders.delete(name));
    }
  }
}

function nameOf(box: string, key: string): string {
  return JSON.stringify([box, key]);
}

/** The locks for scheduling or cancelling these messages: one per type and schedule key. */
export function scheduleLocksOf(messages: readonly Partial<ScheduleKey>[]): string[] {
  return messages.flatMap(({ type, scheduleKey }) =>
    scheduleKey === undefined ? [] : [JSON.stringify([type, scheduleKey])],
  );
}
