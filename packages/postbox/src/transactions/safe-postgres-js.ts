import { isConnectionLost } from "./connection-lost.js";
import { ended, lost, notATransaction, type Refusal } from "./open-transaction.js";
import { sqlState } from "./sql-state.js";
import { Abandoned } from "./until-aborted.js";

export const rightCall =
  "pass the sql of `sql.begin(async (sql) => …)` or the tx of store.transaction((tx) => …), while its function runs";

/** A server ends a session: an administrator asked for it, or the server stops. */
const terminated = "57P01";
/** At most so many connections may have been lost at once without their next user having noticed. */
const mostStale = 100;

/**
 * A transaction of Postgres.js, safe from three faults of it.
 *
 * - Whatever is written to a connection that was lost ends the process, also its own ROLLBACK: so work that fails after that never
 *   settles, and `begin` rejects by itself when its connection closes.
 * - It tells of a session that the server ended once more where that connection is used next: then nothing was sent, and it begins again.
 * - A handle still leads to its connection when its transaction has ended: so the one that `work` gets refuses from then on.
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
  /** Why its handle refuses to send anything; undefined while it is open. */
  over: Refusal | undefined;
}

/** What of a handle sends something. */
const sending: ReadonlySet<unknown> = new Set(["unsafe", "file", "notify", "savepoint"]);

type Anything = (...args: unknown[]) => unknown;

/** The same handle, and those of its savepoints, until it is over. */
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

/** A savepoint whose function fails on a lost connection rejects at once, while Postgres.js waits instead of writing its ROLLBACK TO. */
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

/** Notes that a statement has lost its connection, before its caller knows. Nothing is sent by that: Postgres.js sends what is waited for. */
function noticing(sent: unknown, state: State): unknown {
  const query = sent as { reject?: (error: unknown) => void } | undefined;
  const reject = query?.reject;
  if (query !== undefined && typeof reject === "function") {
    query.reject = (error) => {
      // What is no more than an ERROR, as that of a foreign server, leaves the connection as it is.
      if (isConnectionLost(error) && (error as { severity?: unknown }).severity !== "ERROR") state.over ??= lost;
      reject(error);
    };
  }
  return sent;
}

function never(): Promise<never> {
  return new Promise(() => {});
}
