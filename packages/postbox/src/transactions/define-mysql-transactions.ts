import { callback, checkOptions, text } from "../options.js";
import type { BeginOptions, Executor, TransactionLibrary, TransactionSession } from "../store.js";
import type { Look } from "./define-transactions.js";
import { textOf } from "./guarded-statement.js";
import {
  type MysqlConnection,
  mysqlConnectionOf,
  queryOn,
  refuseMysqlUnawaited,
  requireOpen,
  whyNotUsable,
  withinOpen,
} from "./mysql-connection.js";
import { isMysqlConflict, isMysqlLost, mysqlNumber } from "./mysql-errors.js";
import { ended, notATransaction, onlyValue } from "./open-transaction.js";
import { isEnded, transactionEnded } from "./own-ending.js";

/** What differs between libraries. `defineTransactions` adds what all of them share. */
export interface MysqlTransactionsDefinition<Tx> {
  readonly name: string;
  /** The advice in errors, such as "pass the trx of `db.transaction().execute(async (trx) => …)`". */
  readonly rightCall: string;
  /**
   * How many transactions the library's pool can have open at once. Defaults to unknown: then no router warns that the
   * pool is too small.
   */
  maxTransactions?(): number | undefined;
  /** Receives whatever the caller passed, and must not throw. */
  look(tx: unknown): Look;
  /** Runs one statement with `?` placeholders in the transaction. */
  query(tx: Tx, text: string, params: readonly unknown[]): ReturnType<Executor>;
  /**
   * The connection of `mysql2` under a transaction, if the library exposes it. Without it, each append asks the
   * database whether the transaction is open, with two more statements. Defaults to none.
   */
  connection?(tx: Tx): unknown;
  /** Whether a statement failed because the library knows that its transaction has ended. Defaults to never. */
  hasEnded?(error: unknown): boolean;
  /** Opens a transaction with the library's own call: commits when `work` resolves, rolls back when it rejects. */
  begin<R>(work: (tx: Tx) => Promise<R>, options: BeginOptions): Promise<R>;
}

const rules = {
  name: text,
  rightCall: text,
  maxTransactions: callback,
  look: callback,
  query: callback,
  connection: callback,
  hasEnded: callback,
  begin: callback,
};

const noSuchSavepoint = 1305;

/**
 * Makes a transaction library for `mysqlStore({ pool, transactions })` from any library on MySQL. The database is asked
 * about whatever the library cannot tell, for example that a transaction has ended.
 *
 * @example
 * ```ts
 * class UnitOfWork {
 *   constructor(readonly connection: Connection) {}
 * }
 * const library = defineTransactions<UnitOfWork>({
 *   name: "UnitOfWork",
 *   rightCall: "pass the UnitOfWork of your transaction",
 *   look: (tx) => (tx instanceof UnitOfWork ? "perhaps" : { not: "this is no UnitOfWork" }),
 *   query: async (tx, text, params) => {
 *     const [answer] = await tx.connection.query(text, params as string[]);
 *     return Array.isArray(answer)
 *       ? { rows: answer as Record<string, unknown>[], rowCount: answer.length }
 *       : { rows: [], rowCount: answer.affectedRows };
 *   },
 *   connection: (tx) => tx.connection,
 *   begin: async (work) => {
 *     const connection = await mysqlPool.getConnection();
 *     try {
 *       await connection.beginTransaction();
 *       const result = await work(new UnitOfWork(connection));
 *       await connection.commit();
 *       return result;
 *     } catch (error) {
 *       await connection.rollback();
 *       throw error;
 *     } finally {
 *       connection.release();
 *     }
 *   },
 * });
 * ```
 */
export function defineTransactions<Tx>(definition: MysqlTransactionsDefinition<Tx>): TransactionLibrary<Tx, "mysql"> {
  checkOptions("defineTransactions", definition, rules, ["name", "rightCall", "look", "query", "begin"]);
  const { name, rightCall, query } = definition;
  /** Opened by `begin` and ended since, even if their connections are in use again. */
  const over = new WeakSet<object>();
  const sessions = new WeakMap<object, TransactionSession>();
  const connectionOf = (tx: Tx) => mysqlConnectionOf(definition.connection?.(tx));

  function requireUsable(tx: Tx): void {
    const found = definition.look(tx);
    if (typeof found === "object") throw notATransaction(found, rightCall);
    if (over.has(tx as object)) throw notATransaction(ended, rightCall);
    const connection = connectionOf(tx);
    const refusal = connection && whyNotUsable(connection);
    if (refusal !== undefined) throw notATransaction(refusal, rightCall);
  }

  /** A savepoint outside of a transaction is gone with its own statement. */
  async function requireInTransaction(tx: Tx): Promise<void> {
    await query(tx, "SAVEPOINT postbox_open", []);
    await query(tx, "RELEASE SAVEPOINT postbox_open", []).catch((error: unknown) => {
      throw mysqlNumber(error) === noSuchSavepoint ? notATransaction(ended, rightCall) : error;
    });
  }

  async function runOn(tx: Tx, connection: MysqlConnection | undefined, sql: string, params: readonly unknown[]) {
    if (connection === undefined) return query(tx, sql, params);
    await requireOpen(connection, rightCall);
    return queryOn(connection, sql, params);
  }

  function sessionOf(tx: Tx): TransactionSession {
    const connection = connectionOf(tx);
    if (connection !== undefined) {
      return { id: { pid: connection.threadId, startedAt: "" }, close: () => connection.destroy() };
    }
    const asked = query(tx, "SELECT CONNECTION_ID() AS id", []).then(
      ({ rows }) => ({ pid: Number(onlyValue(rows)), startedAt: "" }),
      () => undefined,
    );
    return { id: asked };
  }

  const maxTransactions = definition.maxTransactions?.();
  return {
    name,
    dialect: "mysql",
    ...(maxTransactions !== undefined && { maxTransactions }),

    session(tx) {
      const session = sessions.get(tx as object) ?? sessionOf(tx);
      sessions.set(tx as object, session);
      return session;
    },

    refuseUnawaited(tx) {
      const connection = connectionOf(tx);
      return connection && refuseMysqlUnawaited(connection);
    },

    executor(tx) {
      requireUsable(tx);
      let isChecked = false;
      return async (statement, params) => {
        try {
          requireUsable(tx);
          const connection = connectionOf(tx);
          if (connection === undefined && !isChecked) await requireInTransaction(tx);
          isChecked = true;
          return await runOn(tx, connection, textOf(statement), params);
        } catch (error) {
          throw definition.hasEnded?.(error) ? notATransaction(ended, rightCall) : error;
        }
      };
    },

    begin: (work, options = {}) =>
      firstFailureOf((failed) =>
        definition.begin(async (tx) => {
          over.delete(tx as object);
          try {
            const connection = connectionOf(tx);
            if (connection !== undefined) return await withinOpen(connection, () => work(tx));
            const run = (sql: string) => query(tx, sql, []);
            return await withinSavepoint(() => work(tx), run);
          } catch (error) {
            failed(error);
            throw error;
          } finally {
            over.add(tx as object);
            sessions.delete(tx as object);
          }
        }, options),
      ),
  };
}

/**
 * Rejects with the first failure of the function inside. A ROLLBACK on a broken connection would otherwise hide it, and
 * a library may even resolve: Knex does if the function throws undefined.
 */
async function firstFailureOf<R>(begin: (failed: (error: unknown) => void) => Promise<R>): Promise<R> {
  const failures: unknown[] = [];
  let result: R;
  try {
    result = await begin((error) => failures.push(error));
  } catch (error) {
    throw failures.length === 0 ? error : failures[0];
  }
  if (failures.length > 0) throw failures[0];
  return result;
}

/** Without the connection: a savepoint at the beginning is gone once the transaction has ended, for whatever reason. */
async function withinSavepoint<R>(work: () => Promise<R>, run: (text: string) => Promise<unknown>): Promise<R> {
  await run("SAVEPOINT postbox_begin");
  const hasEnded = () =>
    run("RELEASE SAVEPOINT postbox_begin").then(
      () => false,
      (error: unknown) => {
        if (mysqlNumber(error) === noSuchSavepoint) return true;
        throw error;
      },
    );
  let result: R;
  try {
    result = await work();
  } catch (thrown) {
    const isOther = isEnded(thrown) || isMysqlConflict(thrown) || isMysqlLost(thrown);
    const isOver = isOther ? false : await hasEnded().catch(() => false);
    throw isOver ? transactionEnded(thrown) : thrown;
  }
  if (await hasEnded()) throw transactionEnded();
  return result;
}
