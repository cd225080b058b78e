import { PostboxError } from "../errors.js";

/** What is under way in each transaction that `withAllFinished` runs, by its handle. */
const underWay = new WeakMap<object, Set<Promise<unknown>>>();

/**
 * Runs a publish into a transaction, which must not end before it. In a transaction that its user has opened, nothing can wait for it: if
 * it is not awaited and fails, that is an unhandled rejection, which Node.js tells.
 */
export function unfinishedIn<R>(tx: unknown, work: () => Promise<R>): Promise<R> {
  const running = underWay.get(tx as object);
  if (running === undefined) return work();
  // Its rejection is not handled here: if the user does not await it, Node.js must report it, or the message would be lost silently.
  const publishing: Promise<R> = work().finally(() => void running.delete(publishing));
  running.add(publishing);
  return publishing;
}

/**
 * Runs the function of a transaction. Publishes that it did not wait for are waited for here, so that none is written behind its
 * ROLLBACK; and if there were any, it fails with `publish-not-awaited`.
 */
export function withAllFinished<Tx, R>(tx: Tx, work: (tx: Tx) => Promise<R>): Promise<R> {
  const running = new Set<Promise<unknown>>();
  underWay.set(tx as object, running);
  // A handle may be used again, as a client of a pool is, for a transaction that its user opens.
  const over = () => void underWay.delete(tx as object);
  // By hand, since this is done for every message that is handled, and each promise costs more than all else here.
  return work(tx).then(
    (result) => {
      if (running.size > 0) return refuse(running).finally(over);
      over();
      return result;
    },
    async (error) => {
      await finish(running);
      over();
      throw error;
    },
  );
}

/** Rejects with `publish-not-awaited` if a publish into the transaction is still under way; nothing where none is. */
export function refuseUnfinished(tx: unknown): Promise<never> | undefined {
  const running = typeof tx === "object" && tx !== null ? underWay.get(tx) : undefined;
  return running === undefined || running.size === 0 ? undefined : refuse(running);
}

async function refuse(running: ReadonlySet<Promise<unknown>>): Promise<never> {
  const { count, reason } = await finish(running);
  throw new PostboxError(
    "publish-not-awaited",
    `${count === 1 ? "a publish was" : `${count} publishes were`} still under way when the transaction's function ended, ` +
      "so everything was rolled back; await every publish before the function returns",
    { cause: reason },
  );
}

async function finish(
  running: ReadonlySet<Promise<unknown>>,
): Promise<{ readonly count: number; readonly reason?: unknown }> {
  let count = 0;
  let reason: unknown;
  while (running.size > 0) {
    count += running.size;
    const outcomes = await Promise.allSettled(running);
    reason ??= outcomes.find((outcome) => outcome.status === "rejected")?.reason;
  }
  return { count, reason };
}
