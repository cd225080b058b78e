import { cpus } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

/** Measures for `forMs` how many cores other processes use; this process only waits. */
export async function busyCores(forMs: number): Promise<number> {
  const before = cpus();
  await sleep(forMs);
  return cpus().reduce((sum, { times }, core) => {
    const earlier = before[core]?.times ?? times;
    const idle = times.idle - earlier.idle;
    const all = total(times) - total(earlier);
    return sum + (all > 0 ? 1 - idle / all : 0);
  }, 0);
}

function total(times: Readonly<Record<string, number>>): number {
  return Object.values(times).reduce((sum, time) => sum + time, 0);
}
