import { type Runtime, sleep } from "./runtime.js";

/**
 * Runs `task` at once for the first call, and once more for all calls that follow while it runs or within `restMs` of
 * its start. Never twice at a time. `task` must not reject.
 */
export function coalesced(task: () => Promise<void>, restMs: number, runtime: Runtime): () => void {
  let wanted = false;
  let running = false;
  async function run(): Promise<void> {
    running = true;
    while (wanted) {
      wanted = false;
      await Promise.all([task(), sleep(runtime, restMs)]);
    }
    running = false;
  }
  return () => {
    wanted = true;
    if (!running) void run();
  };
}
