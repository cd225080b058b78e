import { PostboxError } from "../errors.js";

/** What is under way in a transaction. */
interface UnderWay<Tx = unknown> {
  readonly tx: Tx;
  readonly publishes: Set<Promise<unknown>>;
  readonly library: Noticing<Tx> | undefined;
}

/** What is needed of a `TransactionLibrary`. */
interface Noticing<Tx> {
  refuseUnawaited?(tx: Tx): Promise<void> | undefined;
}

/** Of each transaction that `withAllFinished` runs, by its handle. */
const transactions = new WeakMap<object, UnderWay>();

/**
 * Runs a publish into a transaction, which must not end before it. In a transaction that its user has opened, nothing
 * can wait for it: if it is not awaited and fails, that is an unhandled rejection, which Node.js tells.
 */
export function unfinishedIn<R>(tx: unknown, work: () => Promise<R>): Promise<R> {
  const running = transactions.get(tx as object)?.publishes;
  if (running === undefined) return work();
  // Its rejection is not handled here: if the user does not await it, Node.js must report it, or the message would be
  // lost silently.
  const publishing: Promise<R> = work().finally(() => void running.delete(publishing));
  running.add(publishing);
  return publishing;
}

/**
 * Runs the function of a transaction. Publishes that it did not wait for are waited for here, so that none is written
 * behind its ROLLBACK; and if there were any, it fails with `not-awaited`.
 */
export function withAllFinished<Tx, R>(tx: Tx, work: (tx: Tx) => Promise<R>, library?: Noticing<Tx>): Promise<R> {
  const underWay: UnderWay<Tx> = { tx, publishes: new Set(), library };
  transactions.set(tx as object, underWay as UnderWay);
  // A handle may be used again, as a client of a pool is, for a transaction that its user opens.
  const over = () => void transactions.delete(tx as object);
  // By hand, since this is done for every message that is handled, and each promise costs more than all else here.
  return work(tx).then(
    (result) => {
      if (underWay.publishes.size > 0) return refuse(underWay).finally(over);
      over();
      return result;
    },
    async (error) => {
      await finish(underWay);
      over();
      throw error;
    },
  );
}

/**
 * Rejects with `not-awaited` if a publish into the transaction, or a statement of it, is still under way; undefined if
 * nothing is.
 */
export function refuseUnfinished(tx: unknown): Promise<void> | undefined {
  const underWay = typeof tx === "object" && tx !== null ? transactions.get(tx) : undefined;
  if (underWay === undefined) return undefined;
  return underWay.publishes.size > 0 ? refuse(underWay) : underWay.library?.refuseUnawaited?.(tx);
}

async function refuse<Tx>(underWay: UnderWay<Tx>): Promise<never> {
  const { count, reason } = await finish(underWay);
  throw new PostboxError(
    "not-awaited",
    `${count === 1 ? "a publish was" : `${count} publishes were`} still under way when the transaction's function ` +
      "ended, " +
      "so everything was rolled back; await every publish before the function returns",
    { cause: reason },
  );
}

async function finish<Tx>({
  tx,
  publishes,
  library,
}: UnderWay<Tx>): Promise<{ readonly count: number; readonly reason?: unknown }> {
  let count = 0;
  let reason: unknown;
  while (publishes.size > 0) {
    count += publishes.size;
    const settled = Promise.allSettled(publishes);
    // Behind an open cursor, a publish would never settle.
    await library?.refuseUnawaited?.(tx)?.catch(() => {});
    const outcomes = await settled;
    reason ??= outcomes.find((outcome) => outcome.status === "rejected")?.reason;
  }
  return { count, reason };
}
