import type { Pool as CallbackPool } from "mysql2";
import type { Connection, Pool, PoolConnection } from "mysql2/promise";
import { PostboxError } from "../errors.js";
import type { BeginOptions, TransactionLibrary } from "../store.js";
import { textOf } from "./guarded-statement.js";
import {
  isSound,
  type MysqlConnection,
  mysqlConnectionOf,
  queryOn,
  refuseMysqlUnawaited,
  requireOpen,
  watchOf,
  whyNotUsable,
  withinOpen,
} from "./mysql-connection.js";
import { isPoolClosed } from "./mysql-errors.js";
import { ended, notATransaction } from "./open-transaction.js";

/** A connection of `mysql2/promise` between BEGIN and COMMIT. */
export type Mysql2Transaction = Connection;

const rightCall =
  "pass the connection of `await pool.getConnection()` after `await connection.beginTransaction()`, " +
  "or the tx of store.transaction((tx) => …)";

/**
 * Transactions of `mysql2`. The handle is a connection of `mysql2/promise` between BEGIN and COMMIT.
 *
 * If the connection breaks, `begin` rejects with the driver's error. If it breaks during COMMIT, the outcome is
 * unknown; if the transaction was committed, its messages are sent.
 *
 * @example
 * ```ts
 * const pool = createPool("mysql://localhost/shop");
 * const store = mysqlStore({ pool, transactions: mysql2Transactions(pool) });
 * ```
 */
export function mysql2Transactions(pool: Pool | CallbackPool): TransactionLibrary<Mysql2Transaction, "mysql"> {
  /** Opened by `begin` and ended since, even if their connections are in use again. */
  const over = new WeakSet<object>();
  const promised = "promise" in pool ? pool.promise() : pool;

  return {
    name: "mysql2",
    dialect: "mysql",
    ...limitOf(pool),

    executor(tx) {
      const connection = mysqlConnectionOf(tx);
      if (connection === undefined) throw notATransaction({ not: whatInstead(tx) }, rightCall);
      if (over.has(tx)) throw notATransaction(ended, rightCall);
      const refusal = whyNotUsable(connection);
      if (refusal !== undefined) throw notATransaction(refusal, rightCall);
      return async (statement, params) => {
        if (over.has(tx)) throw notATransaction(ended, rightCall);
        await requireOpen(connection, rightCall);
        return queryOn(connection, textOf(statement), params);
      };
    },

    session: (tx) => {
      const connection = mysqlConnectionOf(tx);
      return {
        id: connection && { pid: connection.threadId, startedAt: "" },
        close: () => connection?.destroy(),
      };
    },

    refuseUnawaited: (tx) => refuseMysqlUnawaited(mysqlConnectionOf(tx) as MysqlConnection),

    async begin(work, options = {}) {
      const tx = await promised.getConnection().catch((error: unknown) => {
        throw isPoolClosed(error) ? poolClosed(error) : error;
      });
      try {
        return await withinMysql(mysqlConnectionOf(tx) as MysqlConnection, () => work(tx), options);
      } finally {
        over.add(tx);
        giveBack(tx, options);
      }
    },
  };
}

async function withinMysql<R>(
  connection: MysqlConnection,
  work: () => Promise<R>,
  { isolation, connected }: BeginOptions,
): Promise<R> {
  // The pool listens to a first error only. A later one would end the process.
  connection.on("error", ignore);
  connected?.(() => connection.destroy());
  watchOf(connection);
  try {
    if (isolation !== undefined) {
      await queryOn(connection, `SET TRANSACTION ISOLATION LEVEL ${isolation.toUpperCase()}`, []);
    }
    await queryOn(connection, "START TRANSACTION", []);
    try {
      const result = await withinOpen(connection, work);
      await queryOn(connection, "COMMIT", []);
      return result;
    } catch (error) {
      await queryOn(connection, "ROLLBACK", []).catch(() => connection.destroy());
      throw error;
    }
  } finally {
    connection.removeListener("error", ignore);
  }
}

function giveBack(tx: PoolConnection, { signal }: BeginOptions): void {
  if (isSound(mysqlConnectionOf(tx) as MysqlConnection) && signal?.aborted !== true) tx.release();
  else tx.destroy();
}

function limitOf(pool: object): { readonly maxTransactions?: number } {
  const parts = pool as { readonly pool?: unknown; readonly config?: { readonly connectionLimit?: unknown } };
  const { config } = (parts.pool ?? parts) as typeof parts;
  const limit = config?.connectionLimit;
  return typeof limit === "number" && limit > 0 ? { maxTransactions: limit } : {};
}

function whatInstead(value: unknown): string {
  if (typeof (value as { readonly getConnection?: unknown } | null)?.getConnection === "function") {
    return "a pool runs each statement on any connection, outside of your transaction";
  }
  const isObject = typeof value === "object" && value !== null;
  const what = isObject ? "this object" : typeof value === "function" ? "this function" : String(value);
  return `${what} is not a connection of mysql2`;
}

function poolClosed(cause: unknown): PostboxError {
  const text =
    "the pool of mysql was ended while it was still in use; stop or close everything that uses the store first, " +
    "then end its pool";
  return new PostboxError("store-closed", text, { cause });
}

function ignore(): void {}
