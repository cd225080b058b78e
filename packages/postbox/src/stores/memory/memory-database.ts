import { type Runtime, runtimeWith } from "../../internal/runtime.js";
import { checkOptions, object } from "../../options.js";
import { type BoxContents, MemoryBox } from "./memory-box.js";
import { MemoryHints } from "./memory-hints.js";
import { MemoryInbox } from "./memory-inbox.js";
import { MemoryKeyLocks } from "./memory-key-locks.js";
import { MemoryWaits } from "./memory-waits.js";

export interface MemoryDatabaseOptions {
  /** Where its clock comes from. Defaults to the system's. */
  readonly runtime?: Partial<Runtime>;
}

/** The data behind memory stores: give the same one to several, as several processes share a database. */
export interface MemoryDatabase {
  /** Moves the database's clock on by `ms`, so that leases run out and holds come due without waiting. */
  advance(ms: number): void;
  /** What a box holds. */
  contents(box: string): BoxContents;
}

export class MemoryData implements MemoryDatabase {
  readonly #waits = new MemoryWaits();
  readonly inbox = new MemoryInbox(this.#waits);
  readonly keyLocks = new MemoryKeyLocks(this.#waits);
  readonly hints = new MemoryHints();
  readonly #boxes = new Map<string, MemoryBox>();
  readonly #runtime: Runtime;
  #offsetMs = 0;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  box(name: string): MemoryBox {
    let box = this.#boxes.get(name);
    if (box === undefined) {
      box = new MemoryBox(() => this.#runtime.now() + this.#offsetMs);
      this.#boxes.set(name, box);
    }
    return box;
  }

  advance(ms: number): void {
    this.#offsetMs += ms;
  }

  contents(box: string): BoxContents {
    return this.box(box).contents();
  }
}

/** Makes an empty database in memory. */
export function memoryDatabase(options: MemoryDatabaseOptions = {}): MemoryDatabase {
  checkOptions("memoryDatabase", options, { runtime: object });
  return new MemoryData(runtimeWith(options.runtime));
}
