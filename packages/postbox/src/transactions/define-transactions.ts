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
 * What can be told of a handle without asking the database: that its transaction is open; that it may be, so that the database is
 * asked, which costs a round trip; or why it is none.
 */
export type Look = "open" | "perhaps" | Refusal;

/** What is special about a library; `defineTransactions` adds what is the same for all. */
export interface TransactionsDefinition<Tx> {
  readonly name: string;
  /** What an error advises: "pass the trx of `db.transaction().execute(async (trx) => …)`". */
  readonly rightCall: string;
  /** How many transactions its pool can have open at once. Defaults to unknown: then no router reports that its pool is too small. */
  maxTransactions?(): number | undefined;
  /** Gets whatever a caller has passed, and must not throw. */
  look(tx: unknown): Look;
  /** Runs one statement with `$n` placeholders in the transaction. */
  query(tx: Tx, text: string, params: readonly unknown[]): ReturnType<Executor>;
  /**
   * The client of `pg` under a transaction, where the library shows it. Then what its function ends itself, or does not await, is noticed
   * at no cost, and its connection can be closed. Defaults to none.
   */
  client?(tx: Tx): ClientState | undefined;
  /** Whether a statement failed since the library itself knows that its transaction has ended. Defaults to never. */
  hasEnded?(error: unknown): boolean;
  /** Opens a transaction in the library's own way: commits when `work` resolves, rolls back when it rejects. */
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

/** A transaction that was opened here, as long as its work runs. */
interface Working {
  /** What runs in it. */
  readonly running: Set<Promise<unknown>>;
  /** Where it runs and when it began, once somebody has asked. */
  asked?: Promise<Required<SessionId> | undefined>;
}

/**
 * The transactions of a library on PostgreSQL, for `postgresStore({ pool, transactions })`. Of any library: what it cannot tell, such
 * as that a transaction has ended or that its COMMIT rolled back, the database is asked for.
 */
export function defineTransactions<Tx>(definition: TransactionsDefinition<Tx>): TransactionLibrary<Tx, "postgres"> {
  checkOptions("defineTransactions", definition, rules, ["name", "rightCall", "look", "query", "begin"]);
  const { name, rightCall, begin } = definition;
  /** The database need not be asked about these. */
  const working = new Map<Tx, Working>();
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

  /** Throws unless its COMMIT will be that of everything in it. One statement, whatever is to be found out. */
  async function requireWhole(tx: Tx, { asked }: Working): Promise<void> {
    const execute = (text: string, params: readonly unknown[]) => definition.query(tx, text, params);
    const begun = await asked;
    if (begun === undefined) return requireAlive(execute);
    const now = await orCommitRolledBack(askSession(execute));
    if (now.pid !== begun.pid || now.begunAt !== begun.begunAt) throw transactionEnded();
  }

  /** Whether what failed runs in another transaction by now. False where that cannot be told: the database refuses to answer in one that failed. */
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
            // Behind an open cursor, the library's ROLLBACK would wait for ever.
            if (client !== undefined) await refuseUnawaited(client)?.catch(() => {});
            const hasEnded =
              !isEnded(thrown) && !options.signal?.aborted && (ending?.seen() || (await isAnother(tx, own)));
            // A library may say only that its transaction is over.
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
            // What nobody waited for: a library may send it behind its own ROLLBACK, where it would commit by itself.
            await Promise.allSettled(own.running);
          }
        }, options);
        if (failure === undefined) return result;
      } catch (error) {
        // A rollback that fails on a broken connection would otherwise hide what broke; and some libraries put theirs in its place.
        throw failure === undefined ? error : failure.error;
      }
      // Rolled back, though the library resolves: Knex does so for a function that throws undefined.
      throw (failure as { readonly error: unknown }).error;
    },
  };
}
