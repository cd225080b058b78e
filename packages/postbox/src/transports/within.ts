import { longestTimerMs, type Runtime } from "../internal/runtime.js";

/** The result of `work`, or undefined after `ms`. Rejects with the signal's reason as soon as the signal is aborted. */
export function within<R>(runtime: Runtime, signal: AbortSignal, work: Promise<R>): Promise<R>;
export function within<R>(
  runtime: Runtime,
  signal: AbortSignal,
  work: Promise<R>,
  ms: number | undefined,
): Promise<R | undefined>;
export function within<R>(
  runtime: Runtime,
  signal: AbortSignal,
  work: Promise<R>,
  ms = longestTimerMs,
): Promise<R | undefined> {
  // By hand, since this runs for every batch, and a batch may be one message: an aborted controller would cost most of
  // it.
  return new Promise((resolve, reject) => {
    const end = () => {
      cancel();
      signal.removeEventListener("abort", abort);
    };
    const abort = () => {
      end();
      reject(signal.reason);
    };
    const cancel = runtime.schedule(() => {
      end();
      resolve(undefined);
    }, ms);
    signal.addEventListener("abort", abort, { once: true });
    if (signal.aborted) abort();
    work.finally(end).then(resolve, reject);
  });
}
