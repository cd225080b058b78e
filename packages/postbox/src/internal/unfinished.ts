import { PostboxError } from "../errors.js";

/** What is under way in each transaction, by its handle. */
const underWay = new WeakMap<object, Set<Promise<unknown>>>();

/** Runs a publish into a transaction, which must not end before it. */
export function unfinishedIn<R>(tx: unknown, work: () => Promise<R>): Promise<R> {
  if ((typeof tx !== "object" && typeof tx !== "function") || tx === null) return work();
  const running = underWay.get(tx) ?? new Set();
  underWay.set(tx, running);
  const publishing = work();
  running.add(publishing);
  const done = () => void running.delete(publishing);
  publishing.then(done, done);
  return publishing;
}

/**
 * Runs the function of a transaction. Publishes that it did not wait for are waited for here, so that none is written behind its
 * ROLLBACK; and if there were any, it fails with `publish-not-awaited`.
 */
export function withAllFinished<Tx, R>(tx: Tx, work: (tx: Tx) => Promise<R>): Promise<R> {
  // By hand, since this is done for every message that is handled, and each promise costs more than all else here.
  return work(tx).then(
    (result) => (isUnderWay(tx) ? refuse(tx) : result),
    (error) => (isUnderWay(tx) ? finish(tx).then(() => Promise.reject(error)) : Promise.reject(error)),
  );
}

function isUnderWay(tx: unknown): boolean {
  const running = underWay.get(tx as object);
  return running !== undefined && running.size > 0;
}

async function refuse(tx: unknown): Promise<never> {
  const { count, reason } = await finish(tx);
  throw new PostboxError(
    "publish-not-awaited",
    `${count === 1 ? "a publish was" : `${count} publishes were`} still under way when the transaction's function ended, ` +
      "so everything was rolled back; await every publish before the function returns",
    { cause: reason },
  );
}

async function finish(tx: unknown): Promise<{ readonly count: number; readonly reason?: unknown }> {
  const running = underWay.get(tx as object);
  let count = 0;
  let reason: unknown;
  while (running !== undefined && running.size > 0) {
    count += running.size;
    const outcomes = await Promise.allSettled(running);
    reason ??= outcomes.find((outcome) => outcome.status === "rejected")?.reason;
  }
  return { count, reason };
}
