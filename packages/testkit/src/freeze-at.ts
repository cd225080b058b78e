import type { Failpoint, Runtime } from "postbox/store";
import { gate } from "./gate.js";

/** Options of `freezeAt`. */
export interface FreezeOptions {
  /** Freezes at this hit of the failpoint. Defaults to 1. */
  readonly times?: number;
  /** The runtime to build on. Defaults to the system's time and randomness. */
  readonly runtime?: Partial<Runtime>;
}

/** A runtime that stops at a failpoint. */
export interface Freeze {
  /** Pass it as the option `runtime` to the part that is to freeze. */
  readonly runtime: Partial<Runtime>;
  /** Resolves when the failpoint is reached for the last time. */
  readonly reached: Promise<void>;
}

/**
 * Simulates a crash without killing a process: freezes what reaches the failpoint, and then everything that reaches any
 * failpoint. No timer fires any more. Concurrent work continues up to its next failpoint.
 *
 * @example
 * ```ts
 * const { runtime, reached } = freezeAt("relay.sent");
 * const relay = createRelay(store, sender, { runtime });
 * await reached;
 * ```
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
