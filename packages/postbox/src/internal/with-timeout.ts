import type { Runtime } from "./runtime.js";

/**
 * The result of `work`, unless `ms` pass first: then it rejects with `late()`, and what `work` does afterwards is
 * ignored. `work` is told through its signal, which is also aborted when `outer` is, with that one's reason.
 */
export async function withTimeout<R>(
  runtime: Runtime,
  ms: number,
  late: () => Error,
  work: (signal: AbortSignal) => Promise<R>,
  outer?: AbortSignal,
): Promise<R> {
  const controller = new AbortController();
  const { signal } = controller;
  const aborted = new Promise<never>((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
  const follow = () => controller.abort(outer?.reason);
  const cancelTimer = runtime.schedule(() => controller.abort(late()), ms);
  outer?.addEventListener("abort", follow, { once: true });
  if (outer?.aborted) follow();
  try {
    const working = work(signal);
    // Whichever loses the race must not end the process by a rejection that nobody sees.
    working.catch(() => {});
    aborted.catch(() => {});
    return await Promise.race([aborted, working]);
  } finally {
    cancelTimer();
    outer?.removeEventListener("abort", follow);
  }
}
