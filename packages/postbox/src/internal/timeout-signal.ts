import type { Runtime } from "./runtime.js";

export interface TimeoutSignal {
  readonly signal: AbortSignal;
  /** Ends the watch. Always call it, or the timer keeps the process alive. */
  cancel(): void;
}

/** A signal that is aborted with `reason()` after `ms`, or as soon as `outer` is, with that one's reason. */
export function timeoutSignal(runtime: Runtime, ms: number, reason: () => Error, outer?: AbortSignal): TimeoutSignal {
  const controller = new AbortController();
  const cancelTimer = runtime.schedule(() => controller.abort(reason()), ms);
  const follow = () => controller.abort(outer?.reason);
  if (outer?.aborted) follow();
  else outer?.addEventListener("abort", follow, { once: true });
  return {
    signal: controller.signal,
    cancel() {
      cancelTimer();
      outer?.removeEventListener("abort", follow);
    },
  };
}
