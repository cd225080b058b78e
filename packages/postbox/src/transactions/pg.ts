import type { ClientBase, Pool, PoolClient, QueryResult } from "pg";
import type { Executor, TransactionExecutor, TransactionLibrary, TransactionOptions } from "../store.js";
import { noteElsewhere } from "./connection-lost.js";
import { textOf } from "./guarded-statement.js";
import { type HeldBegin, holdBegin } from "./held-begin.js";
import {
  type ClientState,
  commitRolledBack,
  isClient,
  notATransaction,
  orSwallowed,
  whyNotOpen,
} from "./open-transaction.js";
import { isEnded, transactionEnded, watchEnding } from "./own-ending.js";
import { type ClientParts, closeClient, sessionOf } from "./session.js";
import { markOwn, refuseUnawaited } from "./unawaited.js";

const rightCall =
  'pass the client of `await pool.connect()` after `await client.query("BEGIN")`, ' +
  "or the tx of store.transaction((tx) => …)";

/** The BEGIN of transactions whose work starts before they are open. */
const beginnings = new WeakMap<object, HeldBegin>();

/**
 * Transactions of `pg`. The handle is a client between BEGIN and COMMIT.
 *
 * If the connection breaks, `begin` rejects with the driver's error. If it breaks during COMMIT, the outcome is
 * unknown; if the transaction was committed, its messages are sent.
 *
 * @example
 * ```ts
 * const store = postgresStore({ pool, transactions: pgTransactions(pool) });
 * ```
 */
export function pgTransactions(pool: Pool): TransactionLibrary<ClientBase, "postgres"> {
  return {
    name: "pg",
    dialect: "postgres",
    maxTransactions: pool.options?.max ?? 10,

    executor(tx) {
      if (!isClient(tx)) throw notATransaction({ not: whatInstead(tx) }, rightCall);
      const beginning = beginnings.get(tx);
      const run: TransactionExecutor = (statement, params) => {
        requireOpen(tx);
        const answer = tx.query(textOf(statement), params as unknown[]);
        markOwn(tx as unknown as ClientParts);
        return answer.then(answerOf);
      };
      if (beginning === undefined || beginning.state === "over") {
        requireOpen(tx);
        return run;
      }
      return (statement, params) => {
        const text = textOf(statement);
        if (beginning.state === "held") return beginning.sendWith(text, params);
        return beginning.opened()?.then(() => run(text, params)) ?? run(text, params);
      };
    },

    session: (client) =>
      sessionOf(client as unknown as ClientParts, (text, params) =>
        client.query(text, params as unknown[]).then(answerOf),
      ),

    refuseUnawaited: (client) => refuseUnawaited(client as unknown as ClientParts),

    async begin(work, options = {}) {
      const client = await pool.connect();
      // The pool listens to idle clients only. A connection that breaks between two statements would end the process.
      client.on("error", ignore);
      options.connected?.(() => closeClient(client as unknown as ClientParts));
      let broken: Error | undefined;
      const ending = watchEnding(client as unknown as ClientParts);
      let beginning: HeldBegin | undefined;
      try {
        if (options.startsWithStatement) beginning = holdBegin(client, beginStatement(options));
        if (beginning?.state === "held") beginnings.set(client, beginning);
        else await (beginning?.opened() ?? client.query(beginStatement(options)));
        const working = work(client);
        // Does nothing if the first statement of `work` has already sent it.
        beginning?.sendAlone();
        const result = await working;
        const opened = beginning?.opened();
        if (opened !== undefined) await opened;
        if (beginning?.failed) throw commitRolledBack();
        const unawaited = refuseUnawaited(client as unknown as ClientParts);
        if (unawaited !== undefined) await unawaited;
        if (ending.seen() || client.getTransactionStatus() === "I") throw transactionEnded();
        ending.stop();
        // COMMIT of a failed transaction succeeds but rolls back. Only its command tag tells.
        const { command } = await client.query("COMMIT");
        if (command !== "COMMIT") throw commitRolledBack();
        return result;
      } catch (thrown) {
        beginning?.sendAlone();
        await beginning?.opened()?.catch(ignore);
        // An open cursor would block ROLLBACK for ever.
        await refuseUnawaited(client as unknown as ClientParts)?.catch(ignore);
        // Decide this before the ROLLBACK below, which does not come from the function.
        const error = ending.seen() && !isEnded(thrown) ? transactionEnded(thrown) : orSwallowed(thrown);
        ending.stop();
        if (!options.signal?.aborted) {
          await noteElsewhere(error, (text, params) => client.query(text, params as unknown[]).then(answerOf));
        }
        // If the first statement cannot be sent, it rejects before the client knows that BEGIN was answered. So roll
        // back whatever the status says.
        broken =
          (await rollback(client, beginning !== undefined)) ??
          (options.signal?.aborted ? new Error("abandoned") : undefined);
        throw error;
      } finally {
        beginnings.delete(client);
        client.removeListener("error", ignore);
        // A client with an open transaction must not return to the pool: the next user's statements would become part
        // of it.
        if (client.getTransactionStatus() !== "I") broken ??= new Error("its transaction is still open");
        client.release(broken);
      }
    },
  };
}

function requireOpen(client: ClientState): void {
  const refusal = whyNotOpen(client);
  if (refusal !== undefined) throw notATransaction(refusal, rightCall);
}

function answerOf({ rows, rowCount }: QueryResult): Awaited<ReturnType<Executor>> {
  return { rows, rowCount: rowCount ?? 0 };
}

function whatInstead(value: unknown): string {
  const { connect, query } = (value ?? {}) as Record<string, unknown>;
  if (typeof connect === "function" && typeof query === "function") {
    return "totalCount" in (value as object)
      ? "a pool runs each statement on any connection, outside of your transaction"
      : "this client does not show whether it is in one, which needs pg 8.21 or later";
  }
  const what =
    typeof value === "object" && value !== null
      ? "this object"
      : typeof value === "function"
        ? "this function"
        : String(value);
  return `${what} is not a client of pg`;
}

/** Rolls back if a transaction is open. Returns an error if the connection must not be used again. */
async function rollback(client: PoolClient, mayBeOpen: boolean): Promise<Error | undefined> {
  if (client.getTransactionStatus() === "I" && !mayBeOpen) return undefined;
  try {
    await client.query("ROLLBACK");
    return undefined;
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
}

function beginStatement({ isolation }: TransactionOptions): string {
  return isolation === undefined ? "BEGIN" : `BEGIN ISOLATION LEVEL ${isolation.toUpperCase()}`;
}

function ignore(): void {}
