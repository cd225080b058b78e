import type { Pool, PoolClient } from "pg";
import { PostboxError } from "../../errors.js";
import { unavailable } from "../../internal/unavailable.js";
import type { Executor } from "../../store.js";
import { closedError, isConnectionLost } from "../../transactions/connection-lost.js";
import { pgTransactions } from "../../transactions/pg.js";
import { sqlState } from "../../transactions/sql-state.js";
import { cancelStatement } from "./cancel-statement.js";
import type { OpenConnection } from "./own-connection.js";
import { plainRows } from "./plain-rows.js";
import { poolPlaces } from "./pool-places.js";
import { isRefused } from "./schema-check.js";

type Result = Awaited<ReturnType<Executor>>;

/** `named`: objects with columns parsed by the pool's parsers. `plain`: as in plain-rows.ts. */
export type RowForm = "named" | "plain";

/** The query configuration of `pg`. */
const configOf = (text: string, params: readonly unknown[], form: RowForm) => ({
  text,
  values: params as unknown[],
  ...(form === "plain" && plainRows),
});

/**
 * Runs the relay's statements. If the signal is aborted first, the statement is cancelled on the server, its connection
 * is destroyed, and the call rejects with the signal's reason. Whether the statement took effect is unknown then.
 */
export type StatementRunner = (
  ...statement: [...Parameters<Executor>, signal?: AbortSignal, form?: RowForm]
) => Promise<Result>;

/** How long a statement waits for a connection of the pool before one is opened outside of it. */
const patienceMs = 1000;
/** How long that connection may take to open. */
const openLimitMs = 10_000;

/**
 * Runs single statements on the pool, each in its own transaction at READ COMMITTED. At that level, a statement that
 * meets a concurrent change waits and reads again. Stricter levels fail with a serialization failure, and SERIALIZABLE
 * would also make user transactions fail because of a relay's reads.
 *
 * READ COMMITTED is the server's default, so the default is queried once. Only if it differs is each statement wrapped
 * in BEGIN and COMMIT, for two more round trips. A session setting would not survive a transaction pooler. If the
 * default changes later, statements fail but do no harm: a settle or take-over that met a concurrent one is rolled
 * back.
 *
 * If a statement with a signal gets no connection, because all are in use or dead, it runs on one that `open` opens
 * outside of the pool, one statement at a time.
 */
export function statementRunner(pool: Pool, open?: OpenConnection): StatementRunner {
  let needsTransaction: boolean | undefined;
  const inTransaction = pgTransactions(pool);
  const places = poolPlaces(pool);
  let beside: Promise<unknown> = Promise.resolve();

  async function onClient(
    client: PoolClient,
    text: string,
    params: readonly unknown[],
    form: RowForm,
  ): Promise<Result> {
    const query = async (...[text, params, form = "named"]: [...Parameters<Executor>, form?: RowForm]) => {
      const { rows, rowCount } = await client.query(configOf(text, params, form));
      return { rows, rowCount: rowCount ?? 0 };
    };
    needsTransaction ??= await levelIsOther(query);
    if (!needsTransaction) return query(text, params, form);
    await query("BEGIN ISOLATION LEVEL READ COMMITTED", []);
    try {
      const result = await query(text, params, form);
      await query("COMMIT", []);
      return result;
    } catch (error) {
      const lost = await query("ROLLBACK", []).catch((thrown: unknown) => ({ thrown }));
      // Hide the server's error: the connection is lost as well, so it must not be reused.
      if ("thrown" in lost) throw new Error((error as Error).message, { cause: error });
      throw error;
    }
  }

  type Statement = [text: string, params: readonly unknown[], form: RowForm];
  async function onPlace(client: PoolClient, signal: AbortSignal, ...statement: Statement) {
    let givenUp = false;
    const giveUp = () => {
      givenUp = true;
      void cancelStatement(client).then(() => client.release(new Error("the statement was given up")));
    };
    signal.addEventListener("abort", giveUp, { once: true });
    try {
      const result = await onClient(client, ...statement);
      if (!givenUp) client.release();
      return result;
    } catch (error) {
      // After an error of the server, the session is still usable, unless the connection was lost.
      if (!givenUp) client.release(isOfServer(error) ? undefined : (error as Error));
      throw error;
    } finally {
      signal.removeEventListener("abort", giveUp);
    }
  }

  function onOwn(signal: AbortSignal, ...statement: Statement): Promise<Result> {
    const call = async (): Promise<Result> => {
      signal.throwIfAborted();
      const connection = await (open as OpenConnection)("statements", openLimitMs, signal);
      signal.addEventListener("abort", connection.giveUp, { once: true });
      try {
        await connection.query("BEGIN ISOLATION LEVEL READ COMMITTED");
        const { rows, rowCount } = await connection.query(configOf(...statement));
        await connection.query("COMMIT");
        return { rows, rowCount: rowCount ?? 0 };
      } finally {
        signal.removeEventListener("abort", connection.giveUp);
        await connection.close();
      }
    };
    const result = beside.then(call, call);
    beside = result.catch(() => {});
    return result;
  }

  const run: StatementRunner = async (text, params, signal, form = "named") => {
    if (signal !== undefined) {
      const client = await places.take(signal, open && patienceMs);
      const statement: Statement = [text, params, form];
      return abortable(
        client === undefined ? onOwn(signal, ...statement) : onPlace(client, signal, ...statement),
        signal,
      );
    }
    needsTransaction ??= await levelIsOther(
      (...statement) => pool.query(...(statement as [string, unknown[]])) as never,
    );
    const { rows, rowCount } = needsTransaction
      ? await inTransaction.begin((client) => client.query(configOf(text, params, form)), {
          isolation: "read committed",
        })
      : await pool.query(configOf(text, params, form));
    return { rows, rowCount: rowCount ?? 0 };
  };
  return (...statement) =>
    run(...statement).catch((error: unknown) => {
      throw namedFailure(error);
    });
}

/** Whether statements run at another isolation level than READ COMMITTED by default. */
async function levelIsOther(query: Executor): Promise<boolean> {
  const { rows } = await query("SELECT current_setting('default_transaction_isolation') AS level", []);
  return rows[0]?.level !== "read committed";
}

/** Names the error of a pool that was ended, or of a server that was not reached. Returns any other error unchanged. */
export function namedFailure(error: unknown): unknown {
  const known = closedError("postgres", error);
  return isAway(known) ? unavailable("postgres", known) : known;
}

/** Whether an error means that the server was not reached: it has no SQLSTATE, and the statement could be encoded. */
function isAway(error: unknown): boolean {
  if (error instanceof PostboxError || isRefused(error)) return false;
  if (isConnectionLost(error)) return true;
  const { code, message } = error as { readonly code?: unknown; readonly message?: unknown };
  const isOurs = error instanceof TypeError || error instanceof RangeError || String(code).startsWith("ERR_");
  return sqlState(error) === undefined && !isOurs && message !== "Query read timeout";
}

/** Rejects as soon as the signal is aborted, because `work` may never end on a dead connection. */
function abortable<R>(work: Promise<R>, signal: AbortSignal): Promise<R> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason);
    if (signal.aborted) onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}

function isOfServer(error: unknown): boolean {
  const { code, severity } = error as { readonly code?: unknown; readonly severity?: unknown };
  return typeof code === "string" && severity === "ERROR";
}
