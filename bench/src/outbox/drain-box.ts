import { createRelay, type RelayOptions } from "postbox";
import { within } from "../time-limit.js";
import type { Box } from "./box.js";
import { type CountingSender, countingSender } from "./counting-sender.js";
import { knownRelayOptions } from "./relay-options.js";

export interface Drained {
  /** From the start of the relay until it has stopped: every row is settled and the lease released. */
  readonly seconds: number;
  readonly sender: CountingSender;
}

const limitMs = 90_000;
const readAtOnce = 1000;

/** Runs a relay until it has sent `rows` messages, then stops it. */
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

/** Fills a box and drains it completely. Throws if a row is left or was sent twice, since the figure would be wrong. */
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
