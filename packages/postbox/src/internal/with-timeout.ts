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
    // Also work that throws at once must take part in the race: whoever loses it is listened to, and ends no process.
    return await Promise.race([aborted, (async () => work(signal))()]);
  } finally {
    cancelTimer();
    outer?.removeEventListener("abort", follow);
  }
}
