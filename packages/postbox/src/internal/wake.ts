import { type Runtime, sleep } from "./runtime.js";

/** Lets a loop sleep until it is woken, or until its time is up. A call that comes before the sleep is not lost. */
export interface Wake {
  wake(): void;
  /** Resolves when woken since the last wait, after `ms` where given, or when the signal is aborted. */
  wait(signal: AbortSignal, ms?: number): Promise<void>;
}

export function createWake(runtime: Runtime): Wake {
  let woken = false;
  let rouse: (() => void) | undefined;
  return {
    wake() {
      woken = true;
      rouse?.();
    },
    async wait(signal, ms) {
      if (!woken && !signal.aborted) {
        const awake = new AbortController();
        const stop = () => awake.abort();
        rouse = stop;
        signal.addEventListener("abort", stop, { once: true });
        await (ms === undefined
          ? new Promise<void>((resolve) => awake.signal.addEventListener("abort", () => resolve(), { once: true }))
          : sleep(runtime, ms, awake.signal));
        signal.removeEventListener("abort", stop);
        rouse = undefined;
      }
      woken = false;
    },
  };
}
