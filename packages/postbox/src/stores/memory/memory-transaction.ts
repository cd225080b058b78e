import { PostboxError } from "../../errors.js";
import type { Message } from "../../message/message.js";
import type { BoxRows, Placed } from "../rows/box-rows.js";
import { isOf, type ScheduleKey } from "../rows/scheduled-rows.js";

/** The handle of a transaction in memory. */
export interface MemoryTransaction {
  /**
   * Runs `effect` when this transaction commits, in the same step as everything else in it; never if it rolls back. Use
   * it for your own data. `effect` must not throw: that rolls back the transaction, but changes of earlier effects
   * stay.
   */
  defer(effect: () => void): void;
}

interface Staged {
  readonly box?: BoxRows;
  readonly placed?: Placed;
  readonly cancelled?: ScheduleKey;
  /** Writes it, after everything that may fail has succeeded. */
  commit(): void;
}

/** The same handle as the database sees it: what it has staged, and how it ends. */
export class OpenTransaction implements MemoryTransaction {
  /** Identifies the database that opened it. */
  readonly database: object;
  /** Resolves when it has committed or rolled back. */
  readonly ended: Promise<void>;
  #end!: () => void;
  #state: "open" | "committed" | "rolled back" = "open";
  /** In the order of the calls. */
  readonly #staged: Staged[] = [];
  readonly #effects: (() => void)[] = [];
  readonly #undos: (() => void)[] = [];
  readonly #checks: (() => void)[] = [];

  constructor(database: object) {
    this.database = database;
    this.ended = new Promise((resolve) => {
      this.#end = resolve;
    });
  }

  get open(): boolean {
    return this.#state === "open";
  }

  get committed(): boolean {
    return this.#state === "committed";
  }

  defer(effect: () => void): void {
    this.check();
    this.#effects.push(effect);
  }

  stage(box: BoxRows, messages: readonly Message[]): void {
    const placed = box.place(messages);
    this.#staged.push({ box, placed, commit: () => box.insert(placed) });
  }

  /**
   * Whether there is a message to cancel, as this transaction sees the box: with its own changes and without those of
   * others.
   */
  hasScheduled(box: BoxRows, key: ScheduleKey): boolean {
    for (const staged of this.#staged.toReversed()) {
      if (staged.box !== box) continue;
      if (staged.placed?.scheduled.some(({ message }) => isOf(message, key))) return true;
      if (staged.cancelled?.type === key.type && staged.cancelled.scheduleKey === key.scheduleKey) return false;
    }
    return box.isScheduled(key);
  }

  /** Call it with the lock of this key. Returns whether there was a message to cancel. */
  cancel(box: BoxRows, key: ScheduleKey): boolean {
    const found = this.hasScheduled(box, key);
    if (found) this.#staged.push({ box, cancelled: key, commit: () => box.cancel(key) });
    return found;
  }

  /** Runs `check` before anything of this transaction becomes visible. If it throws, the transaction rolls back. */
  beforeCommit(check: () => void): void {
    this.#checks.push(check);
  }

  /** Runs `write`, which must not fail, in the step in which everything else of this transaction becomes visible. */
  onCommit(write: () => void): void {
    this.#staged.push({ commit: write });
  }

  /** Runs `undo` if this transaction rolls back. */
  onRollback(undo: () => void): void {
    this.#undos.push(undo);
  }

  commit(): void {
    if (!this.open) {
      throw new PostboxError(
        "commit-rolled-back",
        "the transaction was rolled back instead of committed: something in it failed and the error was swallowed; " +
          "let errors leave the transaction",
      );
    }
    try {
      for (const check of this.#checks) check();
      for (const effect of this.#effects) effect();
    } catch (cause) {
      this.rollback();
      throw cause;
    }
    for (const staged of this.#staged) staged.commit();
    this.#finish("committed");
  }

  rollback(): void {
    if (!this.open) return;
    for (const { box, placed } of this.#staged) if (placed !== undefined) box?.discard(placed);
    // The last one first: if something was changed twice, the first undo knows the original state.
    for (const undo of this.#undos.toReversed()) undo();
    this.#finish("rolled back");
  }

  #finish(state: "committed" | "rolled back"): void {
    this.#state = state;
    // A caller that keeps the handle must not keep the staged data alive.
    for (const list of [this.#staged, this.#effects, this.#undos, this.#checks]) list.length = 0;
    this.#end();
  }

  /** Throws if it has ended: later writes would not be part of any transaction. */
  check(): void {
    if (this.open) return;
    throw new PostboxError(
      "not-a-transaction",
      `this transaction was ${this.#state} already; await everything inside it before its function returns`,
    );
  }
}

/** Returns the open transaction behind a user's handle. Throws an error that names what was passed instead. */
export function openTransaction(handle: unknown, database: object, storeName: string): OpenTransaction {
  if (!(handle instanceof OpenTransaction)) {
    throw new PostboxError(
      "not-a-transaction",
      `${storeName} was given ${describe(handle)} instead of a transaction; ` +
        "pass on what store.transaction(async (tx) => …) hands you",
    );
  }
  if (handle.database !== database) {
    throw new PostboxError(
      "not-a-transaction",
      `${storeName} was given a transaction of another memory database, which cannot commit with this one; ` +
        "use the store that opened it, or give both the same 'database'",
    );
  }
  handle.check();
  return handle;
}

function describe(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (typeof value !== "object") return `a ${typeof value}`;
  return `an object of ${value.constructor?.name ?? "no class"}`;
}
