import { PostboxError } from "../../errors.js";
import { type Runtime, sleep } from "../../internal/runtime.js";
import { type Connection, isBusy, isUnreachable } from "./sqlite-database.js";

/** The longest pause between two attempts to get the lock while another process has it. */
const longestPauseMs = 20;

/**
 * SQLite has one writer at a time. Within the store, writers take turns; against other connections and processes, BEGIN
 * IMMEDIATE is tried again and again without blocking the event loop.
 */
export class Writers {
  readonly #file: string;
  readonly #runtime: Runtime;
  readonly #lockTimeoutMs: number;
  /** Resolves when the last writer in the queue has ended. */
  #last: Promise<void> = Promise.resolve();

  constructor(file: string, runtime: Runtime, lockTimeoutMs: number) {
    this.#file = file;
    this.#runtime = runtime;
    this.#lockTimeoutMs = lockTimeoutMs;
  }

  /**
   * Runs `work` in a transaction, from BEGIN to COMMIT in one synchronous step: no read on the same connection comes
   * between. If `work` throws, it is rolled back. Before it has the lock, an abort leaves nothing.
   */
  write<R>(connection: Connection, work: () => R, signal?: AbortSignal): Promise<R> {
    const step = (): R => {
      try {
        const result = work();
        connection.exec("COMMIT");
        return result;
      } catch (error) {
        rollback(connection);
        throw error;
      }
    };
    return this.#inTurn(() => this.#begun(connection, signal, step), signal);
  }

  /** Runs `work` in a transaction that commits when it resolves and rolls back when it rejects. */
  transact<R>(connection: Connection, work: () => Promise<R>, signal?: AbortSignal): Promise<R> {
    const steps = async (): Promise<R> => {
      try {
        const result = await work();
        connection.exec("COMMIT");
        return result;
      } catch (error) {
        rollback(connection);
        throw error;
      }
    };
    return this.#inTurn(() => this.#begun(connection, signal, steps), signal) as Promise<R>;
  }

  async #inTurn<R>(work: () => Promise<R>, signal: AbortSignal | undefined): Promise<R> {
    const endTurn = await this.#turn(signal);
    try {
      return await work();
    } catch (error) {
      throw this.explained(error);
    } finally {
      endTurn();
    }
  }

  async #turn(signal: AbortSignal | undefined): Promise<() => void> {
    const before = this.#last;
    let endTurn = () => {};
    this.#last = new Promise((resolve) => {
      endTurn = resolve;
    });
    try {
      await unlessAborted(before, signal);
    } catch (error) {
      // Later writers still wait for the earlier ones.
      void before.then(endTurn);
      throw error;
    }
    return endTurn;
  }

  /** Begins a transaction that has the lock, and calls `begun` in the same synchronous step. */
  async #begun<R>(connection: Connection, signal: AbortSignal | undefined, begun: () => R): Promise<R> {
    const startedAt = this.#runtime.monotonic();
    for (let tries = 1; ; tries++) {
      signal?.throwIfAborted();
      try {
        connection.exec("BEGIN IMMEDIATE");
      } catch (error) {
        if (!isBusy(error)) throw error;
        if (this.#runtime.monotonic() - startedAt > this.#lockTimeoutMs) throw error;
        // At random, so that two processes do not try in step.
        await sleep(this.#runtime, Math.min(tries, longestPauseMs) * this.#runtime.random(), signal);
        continue;
      }
      return begun();
    }
  }

  /** `store-unavailable` for a file that cannot be read or written; any other error unchanged. */
  explained(error: unknown): unknown {
    if (!isUnreachable(error)) return error;
    const text = isBusy(error)
      ? `${this.#file} is locked: another connection has been writing for ${this.#lockTimeoutMs} ms; ` +
        "it is tried again; end that transaction"
      : `${this.#file} cannot be used: ${(error as Error).message}; it is tried again; check the disk, ` +
        "its free space and the rights of the folder";
    return new PostboxError("store-unavailable", text, { cause: error });
  }
}

/** Settles like `awaited`, or rejects with the signal's reason when it is aborted. */
export function unlessAborted<R>(awaited: Promise<R>, signal: AbortSignal | undefined, graceMs = 0): Promise<R> {
  if (signal === undefined) return awaited;
  return new Promise((resolve, reject) => {
    let timer: NodeJS.Timeout | undefined;
    const giveUp = () => {
      timer = setTimeout(() => reject(signal.reason), graceMs);
    };
    if (signal.aborted) giveUp();
    else signal.addEventListener("abort", giveUp, { once: true });
    const stop = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", giveUp);
    };
    awaited.finally(stop).then(resolve, reject);
  });
}

/** A failed COMMIT may leave the transaction open. */
function rollback(connection: Connection): void {
  if (connection.inTransaction) connection.exec("ROLLBACK");
}
