import type { Runtime } from "./runtime.js";

/** Lets a loop sleep until it is woken, or for a time. A wake-up before the sleep is not lost. */
export interface Wake {
  wake(): void;
  /**
   * Resolves when it was woken since the last wait, after `ms` if given, or when the signal is aborted. One wait at a
   * time.
   */
  wait(signal: AbortSignal, ms?: number): Promise<void>;
}

/**
 * Without an AbortController for each sleep: aborting one creates an exception with its stack, thousands of times a
 * second.
 */
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
        await new Promise<void>((resolve) => {
          const finish = () => {
            cancel();
            signal.removeEventListener("abort", finish);
            rouse = undefined;
            resolve();
          };
          const cancel = ms === undefined ? () => {} : runtime.schedule(finish, ms);
          signal.addEventListener("abort", finish, { once: true });
          rouse = finish;
        });
      }
      woken = false;
    },
  };
}
