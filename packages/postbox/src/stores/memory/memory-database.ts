import { type Runtime, runtimeWith } from "../../internal/runtime.js";
import { checkOptions, flag, object } from "../../options.js";
import type { BoxContents } from "../rows/box-rows.js";
import { storeOverRows, type VerbsOverRows } from "../rows/over-rows.js";
import { StoreRows } from "../rows/store-rows.js";
import type { Uncommitted } from "./memory-inbox.js";
import { MemoryKeyLocks, scheduleLocksOf } from "./memory-key-locks.js";
import { MemoryWaits } from "./memory-waits.js";

/** Options of `memoryDatabase`. */
export interface MemoryDatabaseOptions {
  /** The source of its clock. Defaults to the system's. */
  readonly runtime?: Partial<Runtime>;
  /**
   * Assigns positions at commit, as in a database with a single writer: no row appears below one that was read already.
   * Defaults to false.
   */
  readonly inCommitOrder?: boolean;
}

/** The data behind memory stores. Pass one to several stores to simulate processes that share a database. */
export interface MemoryDatabase {
  /** Advances the database's clock by `ms`, so that leases expire and holds become due without waiting. */
  advance(ms: number): void;
  /** The contents of a box. */
  contents(box: string): BoxContents;
  /** Everything that is stored, as a text that is equal as long as nothing changes. */
  dump(): string;
}

export class MemoryData implements MemoryDatabase {
  readonly runtime: Runtime;
  readonly rows: StoreRows;
  /** The verbs outside of transactions. */
  readonly verbs: VerbsOverRows;
  /** Inbox entries, by consumer and id. */
  readonly uncommitted = new Map<string, Uncommitted>();
  readonly waits = new MemoryWaits();
  readonly keyLocks = new MemoryKeyLocks(this.waits);
  /** Locks on schedule keys that a transaction has scheduled, replaced or cancelled. */
  readonly scheduleLocks = new MemoryKeyLocks(this.waits);
  /** Locks on schedules that a transaction has read or advanced. */
  readonly tickLocks = new MemoryKeyLocks(this.waits);
  #offsetMs = 0;

  constructor(runtime: Runtime, inCommitOrder = false) {
    this.runtime = runtime;
    this.rows = new StoreRows({
      runtime: { ...runtime, now: () => runtime.now() + this.#offsetMs },
      lateCommits: !inCommitOrder,
      isScheduleLocked: (box, message) => this.scheduleLocks.isLocked(box, scheduleLocksOf([message])),
    });
    this.verbs = storeOverRows({
      runtime,
      inCommitOrder,
      read: async (look) => look(this.rows),
      change: async (work) => work(this.rows),
      isUnavailable: () => false,
    });
  }

  advance(ms: number): void {
    this.#offsetMs += ms;
  }

  contents(box: string): BoxContents {
    return this.rows.look(box).contents();
  }

  dump(): string {
    return JSON.stringify(this.rows);
  }
}

/**
 * Creates an empty database in memory.
 *
 * @example
 * ```ts
 * const database = memoryDatabase();
 * const orders = memoryStore({ database });
 * const billing = memoryStore({ database });
 * ```
 */
export function memoryDatabase(options: MemoryDatabaseOptions = {}): MemoryDatabase {
  checkOptions("memoryDatabase", options, { runtime: object, inCommitOrder: flag });
  return new MemoryData(runtimeWith(options.runtime), options.inCommitOrder);
}
