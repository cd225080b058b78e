import type { Failpoint, Runtime } from "postbox/store";
import { gate } from "./gate.js";

export interface FreezeOptions {
  /** Freezes at this hit of the failpoint. Defaults to 1. */
  readonly times?: number;
  /** What it is built on. Defaults to the system's time and chance. */
  readonly runtime?: Partial<Runtime>;
}

export interface Freeze {
  /** Give this as the option `runtime` to what is to freeze. */
  readonly runtime: Partial<Runtime>;
  /** Resolves when the failpoint is reached for the last time. */
  readonly reached: Promise<void>;
}

/**
 * A process that freezes at a failpoint: what reaches it never goes on, nor does anything that reaches any failpoint
 * later, and no timer fires any more. To everyone else this is a crash, without a process to kill. What was already
 * running beside it goes on to its next failpoint.
 */
export function freezeAt(failpoint: Failpoint, { times = 1, runtime = {} }: FreezeOptions = {}): Freeze {
  const { opened: reached, open } = gate();
  const schedule = runtime.schedule ?? afterTimeout;
  const never = new Promise<void>(() => {});
  let hits = 0;
  let frozen = false;
  return {
    reached,
    runtime: {
      ...runtime,
      schedule: (task, ms) => schedule(() => frozen || task(), ms),
      failpoint(name) {
        if (name === failpoint && ++hits === times) {
          frozen = true;
          open();
        }
        return frozen ? never : undefined;
      },
    },
  };
}

function afterTimeout(task: () => void, ms: number): () => void {
  const timer = setTimeout(task, ms);
  return () => clearTimeout(timer);
}
