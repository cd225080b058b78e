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

type Result = Awaited<ReturnType<Executor>>;

/** With named columns, parsed as the pool does; or plain, as in plain-rows.ts. */
export type RowForm = "named" | "plain";

/** What `pg` takes for a statement. */
const configOf = (text: string, params: readonly unknown[], form: RowForm) => ({
  text,
  values: params as unknown[],
  ...(form === "plain" && plainRows),
});

/**
 * Runs the relay's statements. If the signal is aborted first, the statement is cancelled on the server, its connection destroyed,
 * and the call rejects with the signal's reason; whether the statement took effect is unknown then.
 */
export type StatementRunner = (
  ...statement: [...Parameters<Executor>, signal?: AbortSignal, form?: RowForm]
) => Promise<Result>;

/** How long a statement waits for a connection of the pool before it gets one beside it. */
const patienceMs = 1000;
/** How long such a connection may take to open. */
const openLimitMs = 10_000;

/**
 * Runs single statements on the pool, each in a transaction of its own at READ COMMITTED: there a statement that meets a
 * concurrent change waits and looks again, while the stricter levels give up with a serialization failure, and
 * SERIALIZABLE would also make the user's transactions fail over what a relay reads.
 *
 * That level is the server's default, so the pool is asked once; only where it has another one is each statement put
 * between BEGIN and COMMIT, at the price of two more round trips. Setting the level on the session instead would not
 * survive a transaction pooler. Should the default change later, statements fail, but none goes wrong: a settle or a
 * take-over that met a concurrent one is rolled back.
 *
 * A statement with a signal that gets no connection of the pool, since all are in use or dead, runs on one that is opened beside
 * the pool for it, with `open`; one at a time.
 */
export function statementRunner(pool: Pool, open?: OpenConnection): StatementRunner {
  let needsTransaction: boolean | undefined;
  const inTransaction = pgTransactions(pool);
  const places = poolPlaces(pool);
  let beside: Promise<unknown> = Promise.resolve();

  async function levelIsOther(query: Executor): Promise<boolean> {
    const { rows } = await query("SELECT current_setting('default_transaction_isolation') AS level", []);
    return rows[0]?.level !== "read committed";
  }

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
      // Not as an error of the server's: the connection is lost, too.
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
      // After an error of the server's the session is as good as before, but for one that was lost.
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
      const known = closedError("postgres", error);
      throw isAway(known) ? unavailable("postgres", known) : known;
    });
}

/** What a statement of ours fails with and the server did not say: it was not reached, unless the statement could not be written. */
function isAway(error: unknown): boolean {
  if (error instanceof PostboxError) return false;
  if (isConnectionLost(error)) return true;
  const { code, message } = error as { readonly code?: unknown; readonly message?: unknown };
  const isOurs = error instanceof TypeError || error instanceof RangeError || String(code).startsWith("ERR_");
  return sqlState(error) === undefined && !isOurs && message !== "Query read timeout";
}

/** Rejects as soon as the signal is aborted: a dead connection may never let `work` end. */
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

/**
 * Clients of a pool for calls that may be given up. A pool cannot be told that a request for a client is no longer wanted: what it
 * gives to such a one serves the next call, or goes back at once. So calls that were given up never queue up in the pool.
 */
function poolPlaces(pool: Pool) {
  const requests: Promise<PoolClient>[] = [];
  const waiting = new Set<(client: PoolClient | undefined, error?: unknown) => void>();

  function request(): void {
    const asked = pool.connect();
    requests.push(asked);
    const answered = (
      use: (first: (client: PoolClient | undefined, error?: unknown) => void) => void,
      unwanted: () => void,
    ) => {
      requests.splice(requests.indexOf(asked), 1);
      const [first] = waiting;
      if (first === undefined) unwanted();
      else {
        waiting.delete(first);
        use(first);
      }
    };
    asked.then(
      (client) =>
        answered(
          (first) => first(client),
          () => client.release(),
        ),
      (error) =>
        answered(
          (first) => first(undefined, error),
          () => {},
        ),
    );
  }

  /** A client; or undefined if there is none within `patienceMs`. */
  function take(signal: AbortSignal, patienceMs: number | undefined): Promise<PoolClient | undefined> {
    return new Promise((resolve, reject) => {
      const end = () => {
        waiting.delete(got);
        clearTimeout(timer);
        signal.removeEventListener("abort", onAbort);
      };
      const got = (client: PoolClient | undefined, error?: unknown) => {
        end();
        if (error === undefined) resolve(client);
        else reject(error);
      };
      const onAbort = () => {
        end();
        reject(signal.reason);
      };
      const timer = patienceMs === undefined ? undefined : setTimeout(() => got(undefined), patienceMs);
      if (signal.aborted) return onAbort();
      signal.addEventListener("abort", onAbort, { once: true });
      waiting.add(got);
      if (requests.length < waiting.size) request();
    });
  }
  return { take };
}
