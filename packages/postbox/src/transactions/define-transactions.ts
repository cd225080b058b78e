import { callback, checkOptions, text } from "../options.js";
import type { BeginOptions, Executor, SessionId, TransactionLibrary, TransactionSession } from "../store.js";
import { noteElsewhere } from "./connection-lost.js";
import { textOf } from "./guarded-statement.js";
import {
  type ClientState,
  ended,
  isClient,
  lost,
  notATransaction,
  orCommitRolledBack,
  orSwallowed,
  type Refusal,
  requireAlive,
  whyNotOpen,
} from "./open-transaction.js";
import { isEnded, transactionEnded, watchEnding } from "./own-ending.js";
import { askNumber, inTransaction } from "./same-transaction.js";
import { askSession, type ClientParts, sessionOf } from "./session.js";
import { markOwn, refuseUnawaited } from "./unawaited.js";

/**
 * What a handle shows without a query: its transaction is open, it may be open, or why it is not a transaction. For
 * "perhaps", the store asks the database, which costs a round trip.
 */
export type Look = "open" | "perhaps" | Refusal;

/** What differs between libraries. `defineTransactions` adds what all of them share. */
export interface TransactionsDefinition<Tx> {
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
  /** Runs one statement with `$n` placeholders in the transaction. */
  query(tx: Tx, text: string, params: readonly unknown[]): ReturnType<Executor>;
  /**
   * The `pg` client of a transaction, if the library exposes it. With it, a transaction that its own function ends and
   * statements that are not awaited are detected without a query, and the connection can be closed. Defaults to none.
   */
  client?(tx: Tx): ClientState | undefined;
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
  client: callback,
  hasEnded: callback,
  begin: callback,
};

/** A transaction that `begin` opened and whose work still runs. */
interface Working {
  /** Its statements in flight. */
  readonly running: Set<Promise<unknown>>;
  /** Its session and the time at which it began, if they were queried. */
  asked?: Promise<Required<SessionId> | undefined>;
}

/**
 * Makes a transaction library for `postgresStore({ pool, transactions })` from any library on PostgreSQL. The database
 * is asked about whatever the library cannot tell, for example that a transaction has ended or that its COMMIT rolled
 * back.
 *
 * @example
 * ```ts
 * class UnitOfWork {
 *   constructor(readonly client: ClientBase) {}
 * }
 * const library = defineTransactions<UnitOfWork>({
 *   name: "UnitOfWork",
 *   rightCall: "pass the UnitOfWork of your transaction",
 *   look: (tx) => (tx instanceof UnitOfWork ? "perhaps" : { not: "this is no UnitOfWork" }),
 *   query: async (tx, text, params) => {
 *     const { rows, rowCount } = await tx.client.query(text, [...params]);
 *     return { rows, rowCount: rowCount ?? 0 };
 *   },
 *   begin: async (work) => {
 *     const client = await pool.connect();
 *     try {
 *       await client.query("BEGIN");
 *       const result = await work(new UnitOfWork(client));
 *       await client.query("COMMIT");
 *       return result;
 *     } catch (error) {
 *       await client.query("ROLLBACK");
 *       throw error;
 *     } finally {
 *       client.release();
 *     }
 *   },
 * });
 * ```
 */
export function defineTransactions<Tx>(definition: TransactionsDefinition<Tx>): TransactionLibrary<Tx, "postgres"> {
  checkOptions("defineTransactions", definition, rules, ["name", "rightCall", "look", "query", "begin"]);
  const { name, rightCall, begin } = definition;
  /** Known to be open, so the database need not be asked. */
  const working = new Map<Tx, Working>();
  /** Opened by `begin` and ended since, even if their connections are in use again. */
  const over = new WeakSet<object>();

  /** Throws unless the handle may be open. Returns whether the database has to be asked. */
  const unsure = (tx: Tx): boolean => {
    const found = definition.look(tx);
    if (typeof found === "object") throw notATransaction(found, rightCall);
    if (over.has(tx as object)) throw notATransaction(ended, rightCall);
    return found === "perhaps" && !working.has(tx);
  };

  function within<R>(tx: Tx, statement: Promise<R>): Promise<R> {
    const running = working.get(tx)?.running;
    running?.add(statement);
    const done = () => void running?.delete(statement);
    statement.then(done, done);
    return statement;
  }

  const clientOf = (tx: Tx): ClientParts | undefined => {
    const client = definition.client?.(tx);
    return isClient(client) ? (client as ClientParts) : undefined;
  };

  function session(tx: Tx): TransactionSession {
    const execute = (text: string, params: readonly unknown[]) => within(tx, definition.query(tx, text, params));
    const client = clientOf(tx);
    if (client !== undefined) return sessionOf(client, execute);
    const asked = askSession(execute).catch(() => undefined);
    const open = working.get(tx);
    if (open !== undefined) open.asked = asked;
    return { id: asked };
  }

  /** Throws unless COMMIT would commit everything that `work` did. Always one statement. */
  async function requireWhole(tx: Tx, { asked }: Working): Promise<void> {
    const execute = (text: string, params: readonly unknown[]) => definition.query(tx, text, params);
    const begun = await asked;
    if (begun === undefined) return requireAlive(execute);
    const now = await orCommitRolledBack(askSession(execute));
    if (now.pid !== begun.pid || now.begunAt !== begun.begunAt) throw transactionEnded();
  }

  /**
   * Whether the session is in another transaction than the one that `begin` opened. False if the transaction has
   * failed, since the database then refuses to answer.
   */
  async function isAnother(tx: Tx, { asked }: Working): Promise<boolean> {
    const begun = await asked;
    if (begun === undefined) return false;
    const now = await askSession((text, params) => definition.query(tx, text, params)).catch(() => begun);
    return now.pid !== begun.pid || now.begunAt !== begun.begunAt;
  }

  const maxTransactions = definition.maxTransactions?.();
  return {
    name,
    dialect: "postgres",
    ...(maxTransactions !== undefined && { maxTransactions }),
    session,

    refuseUnawaited(tx) {
      const client = clientOf(tx);
      return client && refuseUnawaited(client);
    },

    executor(tx) {
      unsure(tx);
      const client = clientOf(tx);
      const execute = (text: string, params: readonly unknown[]) => {
        const answer = definition.query(tx, text, params);
        if (client !== undefined) markOwn(client);
        return answer;
      };
      return async (statement, params) => {
        try {
          if (!unsure(tx)) return await within(tx, execute(textOf(statement), params));
          const number = await askNumber(execute);
          if (typeof number === "object") throw notATransaction(number, rightCall);
          return await inTransaction(number, execute, statement, params, rightCall);
        } catch (error) {
          throw definition.hasEnded?.(error) ? notATransaction(ended, rightCall) : error;
        }
      };
    },

    async begin(work, options = {}) {
      let failure: { readonly error: unknown } | undefined;
      try {
        const result = await begin(async (tx) => {
          const own: Working = { running: new Set() };
          const client = clientOf(tx);
          const ending = client && watchEnding(client);
          working.set(tx, own);
          over.delete(tx as object);
          try {
            const result = await work(tx);
            const unawaited = client && refuseUnawaited(client);
            if (unawaited !== undefined) await unawaited;
            if (ending?.seen()) throw transactionEnded();
            await requireWhole(tx, own);
            return result;
          } catch (thrown) {
            // An open cursor would block the library's ROLLBACK for ever.
            if (client !== undefined) await refuseUnawaited(client)?.catch(() => {});
            const hasEnded =
              !isEnded(thrown) && !options.signal?.aborted && (ending?.seen() || (await isAnother(tx, own)));
            // The library may report a lost connection only as a transaction that is over.
            const isLost = client !== undefined && definition.hasEnded?.(thrown) && whyNotOpen(client) === lost;
            const error = hasEnded
              ? transactionEnded(thrown)
              : isLost
                ? notATransaction(lost, rightCall)
                : orSwallowed(thrown);
            if (!options.signal?.aborted) {
              await noteElsewhere(error, (text, params) => definition.query(tx, text, params));
            }
            failure = { error };
            throw error;
          } finally {
            ending?.stop();
            working.delete(tx);
            over.add(tx as object);
            // The library may send statements that were not awaited behind its ROLLBACK, where each would commit by
            // itself.
            await Promise.allSettled(own.running);
          }
        }, options);
        if (failure === undefined) return result;
      } catch (error) {
        // The first failure wins. A ROLLBACK on a broken connection would otherwise hide it, and some libraries replace
        // it.
        throw failure === undefined ? error : failure.error;
      }
      // The transaction was rolled back, but the library resolved. Knex does that if the function throws undefined.
      throw (failure as { readonly error: unknown }).error;
    },
  };
}
