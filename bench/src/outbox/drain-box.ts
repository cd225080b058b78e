import { createRelay, type RelayOptions } from "postbox";
import { within } from "../time-limit.js";
import type { Box } from "./box.js";
import { type CountingSender, countingSender } from "./counting-sender.js";
import { knownRelayOptions } from "./relay-options.js";

export interface Drained {
  /** From the start of the relay until it has stopped: everything is settled, and its lease given back. */
  readonly seconds: number;
  readonly sender: CountingSender;
}

const limitMs = 90_000;
const readAtOnce = 1000;

/** Runs a relay until it has sent `rows`, and stops it. */
export async function drainBox(box: Box, rows: number, options: RelayOptions = {}): Promise<Drained> {
  const sender = countingSender({ expected: rows });
  const known = knownRelayOptions({ order: "key", batchSize: readAtOnce });
  const relay = createRelay(box.store, sender, { ...known, ...options });
  const stop = new AbortController();
  const started = performance.now();
  const run = relay.run(stop.signal);
  try {
    const first = Promise.race([sender.reached, run]);
    await within(limitMs, () => `${sender.sent} of ${rows} rows were sent`, first);
  } finally {
    stop.abort();
    await run;
  }
  return { seconds: (performance.now() - started) / 1000, sender };
}

/** Fills a box and drains all of it. A row that was left, or sent twice, spoils the figure and is an error. */
export async function fillAndDrain(box: Box, rows: number, options: RelayOptions = {}): Promise<Drained> {
  await box.empty();
  await box.fill(rows);
  const drained = await drainBox(box, rows, options);
  const left = await box.left();
  if (left > 0 || drained.sender.sent !== rows) {
    throw new Error(`of ${rows} rows ${drained.sender.sent} were sent and ${left} are left`);
  }
  return drained;
}
