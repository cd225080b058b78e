import { callback, checkOptions, text } from "../options.js";
import type { Executor, TransactionLibrary, TransactionOptions } from "../store.js";
import { askNumber, ended, inTransaction, notATransaction, type Refusal, requireAlive } from "./open-transaction.js";

/**
 * What can be told of a handle without asking the database: that its transaction is open; that it may be, so that the database is
 * asked, which costs a round trip; or why it is none.
 */
export type Look = "open" | "perhaps" | Refusal;

/** What is special about a library; `defineTransactions` adds what is the same for all. */
export interface TransactionsDefinition<Tx> {
  readonly name: string;
  /** What an error advises: "pass the trx of `db.transaction().execute(async (trx) => …)`". */
  readonly rightCall: string;
  /** Gets whatever a caller has passed, and must not throw. */
  look(tx: unknown): Look;
  /** Runs one statement with `$n` placeholders in the transaction. */
  query(tx: Tx, text: string, params: readonly unknown[]): ReturnType<Executor>;
  /** Whether a statement failed since the library itself knows that its transaction has ended. Defaults to never. */
  hasEnded?(error: unknown): boolean;
  /** Opens a transaction in the library's own way: commits when `work` resolves, rolls back when it rejects. */
  begin<R>(work: (tx: Tx) => Promise<R>, options: TransactionOptions): Promise<R>;
}

const rules = { name: text, rightCall: text, look: callback, query: callback, hasEnded: callback, begin: callback };

/**
 * The transactions of a library on PostgreSQL, for `postgresStore({ pool, transactions })`. Of any library: what it cannot tell, such
 * as that a transaction has ended or that its COMMIT rolled back, the database is asked for.
 */
export function defineTransactions<Tx>(definition: TransactionsDefinition<Tx>): TransactionLibrary<Tx> {
  checkOptions("defineTransactions", definition, rules, ["name", "rightCall", "look", "query", "begin"]);
  const { name, rightCall, begin } = definition;
  /** Those that were opened here, as long as their work runs, with what runs in them: nobody has to be asked about them. */
  const working = new Map<Tx, Set<Promise<unknown>>>();
  /** Those that were opened here and have ended, whatever their connections do now. */
  const over = new WeakSet<object>();

  /** Throws unless the handle may be open. Whether the database has to be asked. */
  const unsure = (tx: Tx): boolean => {
    const found = definition.look(tx);
    if (typeof found === "object") throw notATransaction(found, rightCall);
    if (over.has(tx as object)) throw notATransaction(ended, rightCall);
    return found === "perhaps" && !working.has(tx);
  };

  function within<R>(tx: Tx, statement: Promise<R>): Promise<R> {
    const running = working.get(tx);
    running?.add(statement);
    const done = () => void running?.delete(statement);
    statement.then(done, done);
    return statement;
  }

  return {
    name,

    executor(tx) {
      unsure(tx);
      const execute = (text: string, params: readonly unknown[]) => definition.query(tx, text, params);
      return async (text, params) => {
        try {
          if (!unsure(tx)) return await within(tx, execute(text, params));
          const number = await askNumber(execute);
          if (typeof number === "object") throw notATransaction(number, rightCall);
          return await inTransaction(number, execute, text, params, rightCall);
        } catch (error) {
          throw definition.hasEnded?.(error) ? notATransaction(ended, rightCall) : error;
        }
      };
    },

    async begin(work, options = {}) {
      let failure: { readonly error: unknown } | undefined;
      try {
        return await begin(async (tx) => {
          const running = new Set<Promise<unknown>>();
          working.set(tx, running);
          over.delete(tx as object);
          try {
            const result = await work(tx);
            await requireAlive((text, params) => definition.query(tx, text, params));
            return result;
          } catch (error) {
            failure = { error };
            throw error;
          } finally {
            working.delete(tx);
            over.add(tx as object);
            // What nobody waited for: a library may send it behind its own ROLLBACK, where it would commit by itself.
            await Promise.allSettled(running);
          }
        }, options);
      } catch (error) {
        // A rollback that fails on a broken connection would otherwise hide what broke; and some libraries put theirs in its place.
        throw failure === undefined ? error : failure.error;
      }
    },
  };
}
