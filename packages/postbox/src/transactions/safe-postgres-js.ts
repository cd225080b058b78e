import { isConnectionLost } from "./connection-lost.js";
import { ended, lost, notATransaction, type Refusal } from "./open-transaction.js";
import { sqlState } from "./sql-state.js";
import { Abandoned } from "./until-aborted.js";

export const rightCall =
  "pass the sql of `sql.begin(async (sql) => …)` or the tx of store.transaction((tx) => …), while its function runs";

/** `admin_shutdown`: the server ended the session, because of an administrator or because it stops. */
const terminated = "57P01";
/** How many idle connections may have been lost at once before `begin` gives up. */
const mostStale = 100;

/**
 * Runs a transaction of Postgres.js and works around three of its faults:
 *
 * - A write to a connection that was lost ends the process, and so does its own ROLLBACK. If `work` fails after that,
 *   it never settles; `begin` rejects by itself when the connection closes.
 * - If the server has ended an idle session, the next use of that connection fails with the same error again. Nothing
 *   was sent, so the transaction begins again.
 * - A handle still uses its connection after its transaction has ended. The handle that `work` receives refuses from
 *   then on.
 */
export async function beginSafely<Tx extends object>(
  begin: (work: (tx: Tx) => Promise<unknown>) => Promise<unknown>,
  work: (tx: Tx) => Promise<unknown>,
): Promise<unknown> {
  for (let tries = 1; ; tries++) {
    const state: State = { over: undefined };
    let begun = false;
    try {
      return await begin(async (tx) => {
        begun = true;
        try {
          return await work(refusing(tx, state));
        } catch (error) {
          const isEnded = error instanceof Abandoned && error.byForce;
          if (state.over === undefined && !isEnded) throw error;
          return await never();
        } finally {
          state.over ??= ended;
        }
      });
    } catch (error) {
      state.over ??= lost;
      if (begun || tries >= mostStale || sqlState(error) !== terminated) throw error;
    }
  }
}

interface State {
  /** Why the handle refuses to send; undefined while the transaction is open. */
  over: Refusal | undefined;
}

/** The members of a handle that send something. */
const sending: ReadonlySet<unknown> = new Set(["unsafe", "file", "notify", "savepoint"]);

type Anything = (...args: unknown[]) => unknown;

/** Wraps a handle, and those of its savepoints, so that they refuse to send once the transaction is over. */
function refusing<Tx extends object>(tx: Tx, state: State): Tx {
  const send = (method: Anything, self: unknown, args: unknown[]) => {
    if (state.over !== undefined) throw notATransaction(state.over, rightCall);
    return noticing(Reflect.apply(method, self, args), state);
  };
  return new Proxy(tx, {
    apply: (target, self, args) => send(target as unknown as Anything, self, args),
    get(target, name) {
      const value: unknown = Reflect.get(target, name);
      if (typeof value !== "function" || !sending.has(name)) return value;
      if (name !== "savepoint") return (...args: unknown[]) => send(value as Anything, target, args);
      return (...args: unknown[]) => savepoint((safe) => send(value as Anything, target, safe), args, state);
    },
  });
}

/**
 * Runs a savepoint. If its function fails on a lost connection, it rejects at once, and Postgres.js never gets to write
 * ROLLBACK TO.
 */
function savepoint(send: (args: unknown[]) => unknown, args: readonly unknown[], state: State): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const safe = (work: Anything) => async (tx: object) => {
      try {
        return await work(refusing(tx, state));
      } catch (error) {
        if (state.over === undefined) throw error;
        reject(error);
        return await never();
      }
    };
    const given = args.map((arg) => (typeof arg === "function" ? safe(arg as Anything) : arg));
    Promise.resolve(send(given)).then(resolve, reject);
  });
}

/**
 * Records that a statement lost its connection, before the caller learns of it. This does not send the statement:
 * Postgres.js sends it when it is awaited.
 */
function noticing(sent: unknown, state: State): unknown {
  const query = sent as { reject?: (error: unknown) => void } | undefined;
  const reject = query?.reject;
  if (query !== undefined && typeof reject === "function") {
    query.reject = (error) => {
      // An error of severity ERROR, for example from a foreign server, leaves the connection usable.
      if (isConnectionLost(error) && (error as { severity?: unknown }).severity !== "ERROR") state.over ??= lost;
      reject(error);
    };
  }
  return sent;
}

function never(): Promise<never> {
  return new Promise(() => {});
}
