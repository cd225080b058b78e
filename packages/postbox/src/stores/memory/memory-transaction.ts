import { PostboxError } from "../../errors.js";
import type { Message } from "../../message/message.js";
import type { BoxRows, Placed } from "../rows/box-rows.js";
import { isOf, type ScheduleKey } from "../rows/scheduled-rows.js";

/** The handle of a transaction in memory. */
export interface MemoryTransaction {
  /**
   * Runs `effect` when this transaction commits, in the same step as everything else in it; never when it rolls back.
   * It is how your own data joins in, so it must not throw: what does makes the transaction roll back, but what earlier
   * effects changed stays.
   */
  defer(effect: () => void): void;
}

interface Staged {
  readonly box?: BoxRows;
  readonly placed?: Placed;
  readonly cancelled?: ScheduleKey;
  /** Writes it, when everything that may fail has succeeded. */
  commit(): void;
}

/** The same handle, seen from inside the database: what it staged, and how it ends. */
export class OpenTransaction implements MemoryTransaction {
  /** The database that opened it; anything that tells one from another. */
  readonly database: object;
  /** Resolves when it has ended, either way. */
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

  /** Whether there is one to cancel, as this transaction sees the box: with its own changes, and without those of others. */
  hasScheduled(box: BoxRows, key: ScheduleKey): boolean {
    for (const staged of this.#staged.toReversed()) {
      if (staged.box !== box) continue;
      if (staged.placed?.scheduled.some(({ message }) => isOf(message, key))) return true;
      if (staged.cancelled?.type === key.type && staged.cancelled.scheduleKey === key.scheduleKey) return false;
    }
    return box.isScheduled(key);
  }

  /** With the lock of this key. Answers with whether there was one. */
  cancel(box: BoxRows, key: ScheduleKey): boolean {
    const found = this.hasScheduled(box, key);
    if (found) this.#staged.push({ box, cancelled: key, commit: () => box.cancel(key) });
    return found;
  }

  /** Runs `check` before anything of this transaction becomes visible. What it throws rolls it back. */
  beforeCommit(check: () => void): void {
    this.#checks.push(check);
  }

  /** Runs `write`, which cannot fail, in the step in which everything else of this transaction becomes visible. */
  onCommit(write: () => void): void {
    this.#staged.push({ commit: write });
  }

  /** Runs `undo` when this transaction rolls back. */
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
    // The last first: of what was changed twice, the first knows how it was.
    for (const undo of this.#undos.toReversed()) undo();
    this.#finish("rolled back");
  }

  #finish(state: "committed" | "rolled back"): void {
    this.#state = state;
    // Who keeps the handle must not keep alive what it had staged.
    for (const list of [this.#staged, this.#effects, this.#undos, this.#checks]) list.length = 0;
    this.#end();
  }

  /** Throws when it has ended: what were written now would be in no transaction at all. */
  check(): void {
    if (this.open) return;
    throw new PostboxError(
      "not-a-transaction",
      `this transaction was ${this.#state} already; await everything inside it before its function returns`,
    );
  }
}

/** The open transaction behind a user's handle, or an error that says what was handed over instead. */
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
