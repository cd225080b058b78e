import { absolute } from "../figure.js";
import type { Benchmark } from "../part.js";
import { fillUpTo } from "./backlog.js";
import { boxOf } from "./boxes.js";
import { knownRelayOptions } from "./relay-options.js";
import { startRelayProcesses } from "./relay-processes.js";

const name = "outbox.memory";
const rows = 1_000_000;
const limitMs = 90_000;

/**
 * The peak resident memory of a process with one relay that drains a million rows. It takes long, so there is one
 * round.
 */
export const memory: Benchmark = {
  names: [name],
  async measure(run) {
    const box = await boxOf(run, "million");
    const count = run.share(rows);
    await fillUpTo(box, count);
    const { url, schema } = box;
    const options = knownRelayOptions({ order: "key" });
    const relays = startRelayProcesses(1, { url, schema, callMs: 0, options }, run.ending);
    await relays.until(([relay]) => (relay?.sent ?? 0) >= count, limitMs);
    const [peak] = await relays.stop();
    return [absolute(name, "MB", [peak?.peakMegabytes as number])];
  },
};
