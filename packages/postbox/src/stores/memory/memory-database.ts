import { ConfigError } from "../../errors.js";
import { type Runtime, runtimeWith } from "../../internal/runtime.js";
import { checkOptions, flag, object } from "../../options.js";
import { consumerOf, requireBox } from "../box-names.js";
import { MemoryAudit } from "./memory-audit.js";
import { type BoxContents, MemoryBox } from "./memory-box.js";
import { MemoryInbox } from "./memory-inbox.js";
import { MemoryKeyLocks } from "./memory-key-locks.js";
import { scheduleLocksOf } from "./memory-schedule.js";
import { MemorySchedules } from "./memory-schedules.js";
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

/** As where the migrations make them; any other is there once somebody has used it. */
const usualBoxes = ["outbox"];

export class MemoryData implements MemoryDatabase {
  readonly waits = new MemoryWaits();
  readonly inbox = new MemoryInbox();
  readonly keyLocks = new MemoryKeyLocks(this.waits);
  /** Of what transactions have scheduled by a key, replaced or cancelled. */
  readonly scheduleLocks = new MemoryKeyLocks(this.waits);
  /** Of the schedules that a transaction has looked at, or moved on. */
  readonly tickLocks = new MemoryKeyLocks(this.waits);
  readonly schedules: MemorySchedules;
  /** What each dry run has counted, by its number. */
  readonly #dryRuns: ReadonlySet<number>[] = [];
  readonly #boxes = new Map<string, MemoryBox>();
  readonly audit = new MemoryAudit();
  readonly runtime: Runtime;
  readonly #inCommitOrder: boolean;
  #offsetMs = 0;

  constructor(runtime: Runtime, inCommitOrder = false) {
    this.runtime = runtime;
    this.#inCommitOrder = inCommitOrder;
    this.schedules = new MemorySchedules(runtime);
    for (const name of usualBoxes) this.box(name);
  }

  box(name: string): MemoryBox {
    const consumer = consumerOf(name);
    let box = this.#boxes.get(name);
    if (box === undefined) {
      box = new MemoryBox(
        () => this.now(),
        (entry) => this.audit.write(name, this.now(), entry),
        (message) => this.scheduleLocks.isLocked(name, scheduleLocksOf([message])),
        this.#inCommitOrder,
        consumer === undefined ? undefined : () => this.inbox.processed(consumer),
      );
      this.#boxes.set(name, box);
    }
    return box;
  }

  boxNames(): readonly string[] {
    return [...this.#boxes.keys()];
  }

  /** A box that is there: looking at one must not make it. */
  existingBox(name: string): MemoryBox {
    requireBox(name);
    const box = this.#boxes.get(name);
    if (box !== undefined) return box;
    throw new ConfigError(
      "option-invalid",
      `there is no box '${name}', since no such consumer has run; there are ${[...this.#boxes.keys()].join(", ")}`,
      {
        path: "box",
      },
    );
  }

  /** By its clock. */
  now(): number {
    return this.runtime.now() + this.#offsetMs;
  }

  rememberDryRun(positions: readonly number[]): number {
    return this.#dryRuns.push(new Set(positions)) - 1;
  }

  dryRun(number: number): ReadonlySet<number> | undefined {
    return this.#dryRuns[number];
  }

  advance(ms: number): void {
    this.#offsetMs += ms;
  }

  contents(box: string): BoxContents {
    return this.box(box).contents();
  }

  dump(): string {
    const boxes = [...this.#boxes].map(([name, box]) => [name, box.everything()]);
    const everything = [boxes, this.audit.everything(), this.inbox.everything(), this.schedules.everything()];
    return JSON.stringify(everything, (_, value: unknown) => {
      if (value instanceof Uint8Array) return Buffer.from(value).toString("base64");
      return typeof value === "number" && !Number.isFinite(value) ? String(value) : value;
    });
  }
}

/** Makes an empty database in memory. */
export function memoryDatabase(options: MemoryDatabaseOptions = {}): MemoryDatabase {
  checkOptions("memoryDatabase", options, { runtime: object, inCommitOrder: flag });
  return new MemoryData(runtimeWith(options.runtime), options.inCommitOrder);
}
