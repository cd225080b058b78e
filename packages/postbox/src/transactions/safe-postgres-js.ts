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
 * - Whatever is written to a connection that was lost ends the process, also its own ROLLBACK: so work that fails for that never
 *   settles, and `begin` rejects by itself when its connection closes.
 * - It tells of a session that the server ended once more where that connection is used next: then nothing was sent, and it begins again.
 * - A handle still leads to its connection when its transaction has ended: so the one that `work` gets refuses from then on.
 */
export async function beginSafely<Tx extends object>(
  begin: (work: (tx: Tx) => Promise<unknown>) => Promise<unknown>,
  work: (tx: Tx) => Promise<unknown>,
): Promise<unknown> {
  for (let tries = 1; ; tries++) {
    let over: Refusal | undefined;
    let begun = false;
    const requireOpen = () => {
      if (over !== undefined) throw notATransaction(over, rightCall);
    };
    try {
      return await begin(async (tx) => {
        begun = true;
        try {
          return await work(refusing(tx, requireOpen));
        } catch (error) {
          if (over === undefined && !(error instanceof Abandoned) && !isConnectionLost(error)) throw error;
          return await new Promise<never>(() => {});
        } finally {
          over ??= ended;
        }
      });
    } catch (error) {
      over ??= lost;
      if (begun || tries >= mostStale || sqlState(error) !== terminated) throw error;
    }
  }
}

/** What of a handle sends something. */
const sending: ReadonlySet<unknown> = new Set(["unsafe", "file", "notify", "savepoint"]);

type Anything = (...args: unknown[]) => unknown;

/** The same handle, and those of its savepoints, as long as `requireOpen` does not throw. */
function refusing<Tx extends object>(tx: Tx, requireOpen: () => void): Tx {
  return new Proxy(tx, {
    apply(target, self, args) {
      requireOpen();
      return Reflect.apply(target as unknown as Anything, self, args);
    },
    get(target, name) {
      const value: unknown = Reflect.get(target, name);
      if (typeof value !== "function" || !sending.has(name)) return value;
      return (...args: unknown[]) => {
        requireOpen();
        const inner = (given: unknown) =>
          typeof given === "function" && name === "savepoint"
            ? (own: object) => (given as Anything)(refusing(own, requireOpen))
            : given;
        return Reflect.apply(value as Anything, target, args.map(inner));
      };
    },
  });
}
