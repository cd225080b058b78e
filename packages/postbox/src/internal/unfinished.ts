import { PostboxError } from "../errors.js";

/** What is in progress in a transaction. */
interface UnderWay<Tx = unknown> {
  readonly tx: Tx;
  readonly publishes: Set<Promise<unknown>>;
  readonly library: Noticing<Tx> | undefined;
}

/** The part of a `TransactionLibrary` that is needed here. */
interface Noticing<Tx> {
  refuseUnawaited?(tx: Tx): Promise<void> | undefined;
}

/** The transactions that `withAllFinished` runs, by their handles. */
const transactions = new WeakMap<object, UnderWay>();

/**
 * Runs a publish into a transaction, which must not end before it. In a transaction that the user opened, nothing can
 * wait for it: if it is not awaited and fails, Node.js reports an unhandled rejection.
 */
export function unfinishedIn<R>(tx: unknown, work: () => Promise<R>): Promise<R> {
  const running = transactions.get(tx as object)?.publishes;
  if (running === undefined) return work();
  // Not handled here: if the user does not await it, Node.js must report its failure, or the message would be lost
  // silently.
  const publishing: Promise<R> = work().finally(() => void running.delete(publishing));
  running.add(publishing);
  return publishing;
}

/**
 * Runs the function of a transaction. If publishes are still in progress when it returns, it waits for them, so that
 * none is written after the ROLLBACK, and fails with `not-awaited`.
 */
export function withAllFinished<Tx, R>(tx: Tx, work: (tx: Tx) => Promise<R>, library?: Noticing<Tx>): Promise<R> {
  const underWay: UnderWay<Tx> = { tx, publishes: new Set(), library };
  transactions.set(tx as object, underWay as UnderWay);
  // A handle, such as a client of a pool, may be used again for a transaction that its user opens.
  const over = () => void transactions.delete(tx as object);
  // By hand, since this runs for every message that is handled, and each promise costs more than all else here.
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
 * Rejects with `not-awaited` if a publish into the transaction, or a statement of it, is still in progress; undefined
 * if none is.
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
