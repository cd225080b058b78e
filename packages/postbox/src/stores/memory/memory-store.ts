import { ConfigError, PostboxError } from "../../errors.js";
import type { Health, HealthOptions } from "../../health.js";
import { type Runtime, runtimeWith } from "../../internal/runtime.js";
import { createSurrounding } from "../../internal/surrounding.js";
import { withAllFinished } from "../../internal/unfinished.js";
import { checkOptions, flag, type OptionRule, object, oneOf, signal as signalRule, text } from "../../options.js";
import type { Store, TransactionOptions } from "../../store.js";
import type { BoxContents } from "../rows/box-rows.js";
import { MemoryData, type MemoryDatabase } from "./memory-database.js";
import { memoryInbox } from "./memory-inbox.js";
import { scheduleLocksOf } from "./memory-key-locks.js";
import { type MemoryTransaction, OpenTransaction, openTransaction } from "./memory-transaction.js";

/** Options of `memoryStore`. */
export interface MemoryStoreOptions {
  /** The data that it works on. Defaults to an empty database of its own. */
  readonly database?: MemoryDatabase;
  /** The clock of its own database; not together with `database`. Defaults to the system's. */
  readonly runtime?: Partial<Runtime>;
  /** The name in errors. Defaults to "memory". */
  readonly name?: string;
}

/** A store in memory. */
export interface MemoryStore extends Store<MemoryTransaction> {
  /** The contents of a box. */
  contents(box: string): BoxContents;
  /**
   * Simulates a crash of the process: open transactions of this store object roll back and can neither continue nor
   * commit.
   */
  crash(): void;
  health(options?: HealthOptions): Promise<Health>;
}

const databaseRule: OptionRule = {
  expected: "what memoryDatabase() returned",
  test: (value) => value instanceof MemoryData,
};
const transactionRules = {
  isolation: oneOf("read committed", "repeatable read", "serializable"),
  signal: signalRule,
  startsWithStatement: flag,
};

/**
 * A store in memory that behaves like a database. What a transaction writes appears at its commit, all at once.
 * Positions are assigned at append, so a lower one may appear later, and rollbacks leave gaps.
 *
 * Every isolation level is honoured, because a transaction reads only what is remembered, and locks it. A nested
 * transaction of the same store is an error: it could not commit together with the outer one.
 *
 * @example
 * ```ts
 * const store = memoryStore();
 * const outbox = createOutbox(store, { source: "/orders" });
 * await store.transaction((tx) => outbox.in(tx).publish(OrderPlaced, { orderId: "1", total: 20 }));
 * ```
 */
export function memoryStore(options: MemoryStoreOptions = {}): MemoryStore {
  checkOptions("memoryStore", options, { database: databaseRule, runtime: object, name: text });
  if (options.database !== undefined && options.runtime !== undefined) {
    throw new ConfigError(
      "option-invalid",
      "memoryStore: give 'runtime' to memoryDatabase() instead, whose clock it is",
      {
        path: "runtime",
      },
    );
  }
  const { name = "memory" } = options;
  const data = (options.database as MemoryData | undefined) ?? new MemoryData(runtimeWith(options.runtime));
  const surrounding = createSurrounding<OpenTransaction>();
  const open = new Set<OpenTransaction>();

  /**
   * Work that a transaction started may outlive it and still run in its context. Then there is no current transaction.
   */
  const current = (): OpenTransaction | undefined => {
    const tx = surrounding.get();
    return tx?.open ? tx : undefined;
  };

  return {
    name,
    current,

    async transaction<R>(work: (tx: MemoryTransaction) => Promise<R>, txOptions: TransactionOptions = {}): Promise<R> {
      checkOptions("transaction", txOptions, transactionRules);
      if (current() !== undefined) {
        throw new ConfigError(
          "transaction-nested",
          `a transaction of ${name} is open here already, and one inside it could not commit with it; ` +
            "use currentTransaction(store)",
        );
      }
      const tx = new OpenTransaction(data);
      open.add(tx);
      try {
        const working = surrounding.run(tx, () => withAllFinished(tx, work));
        const result = await (txOptions.signal === undefined ? working : unlessAborted(working, txOptions.signal));
        tx.commit();
        return result;
      } catch (cause) {
        tx.rollback();
        throw cause;
      } finally {
        open.delete(tx);
      }
    },

    async append(handle, box, messages, { strictKeyOrder = false } = {}) {
      const tx = openTransaction(handle, data, name);
      const keys = strictKeyOrder ? messages.flatMap(({ key }) => key ?? []) : [];
      if (keys.length > 0) await data.keyLocks.lock(tx, box, keys);
      const scheduled = scheduleLocksOf(messages);
      if (scheduled.length > 0) await data.scheduleLocks.lock(tx, box, scheduled);
      tx.stage(data.rows.box(box), messages);
    },

    async cancel(handle, boxName, type, scheduleKey) {
      const tx = openTransaction(handle, data, name);
      const box = data.rows.box(boxName);
      const key = { type, scheduleKey };
      // An uncommitted message of another transaction does not exist yet, so there is nothing to wait for.
      if (!tx.hasScheduled(box, key)) return false;
      await data.scheduleLocks.lock(tx, boxName, scheduleLocksOf([key]));
      return tx.cancel(box, key);
    },

    async tick(handle, schedule, claim) {
      const tx = openTransaction(handle, data, name);
      await data.tickLocks.lock(tx, "schedule", [schedule]);
      tx.onRollback(data.rows.untick(schedule));
      return data.rows.tick(schedule, claim);
    },

    inbox: memoryInbox(data, (handle) => openTransaction(handle, data, name)),
    isUnavailable: () => false,
    isRefused: () => false,
    isConflict: (error) => error instanceof PostboxError && error.code === "transaction-conflict",

    afterCommit(handle, task) {
      const tx = openTransaction(handle, data, name);
      void tx.ended.then(() => tx.committed && task());
      return true;
    },

    ...data.verbs,
    contents: (box) => data.contents(box),
    crash() {
      for (const tx of open) tx.rollback();
    },

    /** Does nothing, since memory has no schema. */
    async migrate(): Promise<void> {},
  };
}

/** How many microtask turns a handler that observes its signal has to end by itself. */
const grace = 50;

/**
 * Returns the result of `work`. If the signal is aborted and `work` does not end at once, rejects with the signal's
 * reason.
 */
async function unlessAborted<R>(work: Promise<R>, signal: AbortSignal): Promise<R> {
  let abort = () => {};
  const aborted = new Promise<void>((resolve) => {
    abort = resolve;
  }).then(async () => {
    for (let turn = 0; turn < grace; turn++) await undefined;
    throw signal.reason;
  });
  aborted.catch(() => {});
  signal.addEventListener("abort", abort, { once: true });
  if (signal.aborted) abort();
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}
