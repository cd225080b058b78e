import { type Runtime, runtimeWith } from "../../internal/runtime.js";
import { checkOptions, flag, object } from "../../options.js";
import type { BoxContents } from "../rows/box-rows.js";
import { storeOverRows, type VerbsOverRows } from "../rows/over-rows.js";
import { StoreRows } from "../rows/store-rows.js";
import type { Uncommitted } from "./memory-inbox.js";
import { MemoryKeyLocks, scheduleLocksOf } from "./memory-key-locks.js";
import { MemoryWaits } from "./memory-waits.js";

export interface MemoryDatabaseOptions {
  /** Where its clock comes from. Defaults to the system's. */
  readonly runtime?: Partial<Runtime>;
  /** Gives positions at commit, so that no row appears below one that was found, as in a database with one writer. Defaults to false. */
  readonly inCommitOrder?: boolean;
}

/** The data behind memory stores: give the same one to several, as several processes share a database. */
export interface MemoryDatabase {
  /** Moves the database's clock on by `ms`, so that leases run out and holds come due without waiting. */
  advance(ms: number): void;
  /** What a box holds. */
  contents(box: string): BoxContents;
  /** All that is stored, as text that stays the same while nothing changes. */
  dump(): string;
}

export class MemoryData implements MemoryDatabase {
  readonly runtime: Runtime;
  readonly rows: StoreRows;
  /** What stores on it do outside of transactions. */
  readonly verbs: VerbsOverRows;
  /** Of inboxes, by consumer and id. */
  readonly uncommitted = new Map<string, Uncommitted>();
  readonly waits = new MemoryWaits();
  readonly keyLocks = new MemoryKeyLocks(this.waits);
  /** Of what transactions have scheduled by a key, replaced or cancelled. */
  readonly scheduleLocks = new MemoryKeyLocks(this.waits);
  /** Of the schedules that a transaction has looked at, or moved on. */
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

/** Makes an empty database in memory. */
export function memoryDatabase(options: MemoryDatabaseOptions = {}): MemoryDatabase {
  checkOptions("memoryDatabase", options, { runtime: object, inCommitOrder: flag });
  return new MemoryData(runtimeWith(options.runtime), options.inCommitOrder);
}
