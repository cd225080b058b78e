import { absolute } from "../figure.js";
import type { Benchmark } from "../part.js";
import { boxOf } from "./boxes.js";
import { knownRelayOptions } from "./relay-options.js";
import { startRelayProcesses } from "./relay-processes.js";

const name = "outbox.memory.large";
const rows = 300;
const megabyte = 2 ** 20;
const awayForMs = 15_000;
const limitMs = 90_000;
/** How long a call of the sender takes: longer than the whole measurement, or slow. */
const calls = { away: 3_600_000, slow: 50 } as const;

/**
 * The peak resident memory of a process with one relay and messages of 1 MB, while the broker does not answer and while
 * it is slow.
 */
export const memoryLarge: Benchmark = {
  names: [name],
  async measure(run) {
    const box = await boxOf(run, "large");
    const count = run.share(rows);
    await box.empty();
    await box.fill(count);
    await box.pool.query(
      `UPDATE ${box.pending} SET data = convert_to(repeat(md5(random()::text), ${megabyte / 32}), 'UTF8')`,
    );
    const { url, schema } = box;
    const options = { ...knownRelayOptions({ order: "key" }), leaseMs: 6_000, publishTimeoutMs: 1_500 };
    const peaks: number[] = [];
    for (const callMs of [calls.away, calls.slow]) {
      const relays = startRelayProcesses(1, { url, schema, callMs, options }, run.ending);
      if (callMs === calls.slow) await relays.until(([relay]) => (relay?.sent ?? 0) >= count, limitMs);
      else await new Promise((resolve) => setTimeout(resolve, awayForMs));
      const [peak] = await relays.stop();
      peaks.push(peak?.peakMegabytes as number);
    }
    return [absolute(name, "MB", [Math.max(...peaks)])];
  },
};
