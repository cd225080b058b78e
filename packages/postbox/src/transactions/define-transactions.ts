import { callback, checkOptions, text } from "../options.js";
import type {
  BeginOptions,
  Executor,
  SessionId,
  TransactionExecutor,
  TransactionLibrary,
  TransactionSession,
} from "../store.js";
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
  const transactions = new DefinedTransactions(definition);
  const maxTransactions = definition.maxTransactions?.();
  return {
    name: definition.name,
    dialect: "postgres",
    ...(maxTransactions !== undefined && { maxTransactions }),
    session: (tx) => transactions.session(tx),
    executor: (tx) => transactions.executor(tx),
    begin: (work, options = {}) => transactions.begin(work, options),
    refuseUnawaited(tx) {
      const client = transactions.clientOf(tx);
      return client && refuseUnawaited(client);
    },
  };
}

/** The transactions of one library, and what is known of them without asking the database. */
class DefinedTransactions<Tx> {
  readonly #definition: TransactionsDefinition<Tx>;
  /** Known to be open, so the database need not be asked. */
  readonly #working = new Map<Tx, Working>();
  /** Opened by `begin` and ended since, even if their connections are in use again. */
  readonly #over = new WeakSet<object>();

  constructor(definition: TransactionsDefinition<Tx>) {
    this.#definition = definition;
  }

  clientOf(tx: Tx): ClientParts | undefined {
    const client = this.#definition.client?.(tx);
    return isClient(client) ? (client as ClientParts) : undefined;
  }

  session(tx: Tx): TransactionSession {
    const execute = (text: string, params: readonly unknown[]) => this.#within(tx, this.#query(tx, text, params));
    const client = this.clientOf(tx);
    if (client !== undefined) return sessionOf(client, execute);
    const asked = askSession(execute).catch(() => undefined);
    const open = this.#working.get(tx);
    if (open !== undefined) open.asked = asked;
    return { id: asked };
  }

  executor(tx: Tx): TransactionExecutor {
    this.#unsure(tx);
    const definition = this.#definition;
    const { rightCall } = definition;
    const client = this.clientOf(tx);
    const execute = (text: string, params: readonly unknown[]) => {
      const answer = this.#query(tx, text, params);
      if (client !== undefined) markOwn(client);
      return answer;
    };
    return async (statement, params) => {
      try {
        if (!this.#unsure(tx)) return await this.#within(tx, execute(textOf(statement), params));
        const number = await askNumber(execute);
        if (typeof number === "object") throw notATransaction(number, rightCall);
        return await inTransaction(number, execute, statement, params, rightCall);
      } catch (error) {
        throw definition.hasEnded?.(error) ? notATransaction(ended, rightCall) : error;
      }
    };
  }

  async begin<R>(work: (tx: Tx) => Promise<R>, options: BeginOptions): Promise<R> {
    let failure: { readonly error: unknown } | undefined;
    try {
      const result = await this.#definition.begin(async (tx) => {
        try {
          return await this.#run(tx, work, options);
        } catch (error) {
          failure = { error };
          throw error;
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
  }

  /** Runs the function of a transaction that has just been opened. Rejects unless COMMIT would commit all of it. */
  async #run<R>(tx: Tx, work: (tx: Tx) => Promise<R>, options: BeginOptions): Promise<R> {
    const own: Working = { running: new Set() };
    const client = this.clientOf(tx);
    const ending = client && watchEnding(client);
    this.#working.set(tx, own);
    this.#over.delete(tx as object);
    try {
      const result = await work(tx);
      const unawaited = client && refuseUnawaited(client);
      if (unawaited !== undefined) await unawaited;
      if (ending?.seen()) throw transactionEnded();
      await this.#requireWhole(tx, own);
      return result;
    } catch (thrown) {
      // An open cursor would block the library's ROLLBACK for ever.
      if (client !== undefined) await refuseUnawaited(client)?.catch(() => {});
      const hasEnded =
        !isEnded(thrown) && !options.signal?.aborted && (ending?.seen() || (await this.#isAnother(tx, own)));
      const error = hasEnded ? transactionEnded(thrown) : this.#named(thrown, client);
      if (!options.signal?.aborted) await noteElsewhere(error, (text, params) => this.#query(tx, text, params));
      throw error;
    } finally {
      ending?.stop();
      this.#working.delete(tx);
      this.#over.add(tx as object);
      // The library may send statements that were not awaited behind its ROLLBACK, where each would commit by itself.
      await Promise.allSettled(own.running);
    }
  }

  /** The library may report a lost connection only as a transaction that is over. */
  #named(thrown: unknown, client: ClientParts | undefined): unknown {
    const definition = this.#definition;
    const isLost = client !== undefined && definition.hasEnded?.(thrown) && whyNotOpen(client) === lost;
    return isLost ? notATransaction(lost, definition.rightCall) : orSwallowed(thrown);
  }

  #query(tx: Tx, text: string, params: readonly unknown[]): ReturnType<Executor> {
    return this.#definition.query(tx, text, params);
  }

  /** Throws unless the handle may be open. Returns whether the database has to be asked. */
  #unsure(tx: Tx): boolean {
    const { rightCall } = this.#definition;
    const found = this.#definition.look(tx);
    if (typeof found === "object") throw notATransaction(found, rightCall);
    if (this.#over.has(tx as object)) throw notATransaction(ended, rightCall);
    return found === "perhaps" && !this.#working.has(tx);
  }

  #within<R>(tx: Tx, statement: Promise<R>): Promise<R> {
    const running = this.#working.get(tx)?.running;
    running?.add(statement);
    const done = () => void running?.delete(statement);
    statement.then(done, done);
    return statement;
  }

  /** Throws unless COMMIT would commit everything that `work` did. Always one statement. */
  async #requireWhole(tx: Tx, { asked }: Working): Promise<void> {
    const execute = (text: string, params: readonly unknown[]) => this.#query(tx, text, params);
    const begun = await asked;
    if (begun === undefined) return requireAlive(execute);
    const now = await orCommitRolledBack(askSession(execute));
    if (now.pid !== begun.pid || now.begunAt !== begun.begunAt) throw transactionEnded();
  }

  /**
   * Whether the session is in another transaction than the one that `begin` opened. False if the transaction has
   * failed, since the database then refuses to answer.
   */
  async #isAnother(tx: Tx, { asked }: Working): Promise<boolean> {
    const begun = await asked;
    if (begun === undefined) return false;
    const now = await askSession((text, params) => this.#query(tx, text, params)).catch(() => begun);
    return now.pid !== begun.pid || now.begunAt !== begun.begunAt;
  }
}
