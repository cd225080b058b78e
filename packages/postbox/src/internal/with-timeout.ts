import type { Runtime } from "./runtime.js";

/**
 * The result of `work`, unless `ms` pass first: then it rejects with `late()`, and the result is ignored. The signal
 * that `work` gets is aborted then, and when `outer` is aborted, with its reason.
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
    // Work that throws synchronously must take part in the race too, so that its error is handled.
    return await Promise.race([aborted, (async () => work(signal))()]);
  } finally {
    cancelTimer();
    outer?.removeEventListener("abort", follow);
  }
}
