import { setTimeout as sleep } from "node:timers/promises";
import { compared, missing } from "../figure.js";
import type { Benchmark, Run } from "../part.js";
import { alternate } from "../rounds.js";
import type { Box } from "./box.js";
import { boxOf } from "./boxes.js";
import { knownRelayOptions } from "./relay-options.js";
import { type RelayProcesses, startRelayProcesses } from "./relay-processes.js";

const name = "outbox.scale-out";
const rows = 30_000;
const batch = 500;
const callMs = 20;
const warmUpRows = 4 * batch;
const joinLimitMs = 6_000;
const drainLimitMs = 60_000;

/** A short lease, so that a relay that joins soon gets its share of the lanes. */
const leaseMs = 3_000;
const wished = {
  order: "key",
  batchSize: batch,
  maxInFlight: batch,
  pollIntervalMs: 20,
  leaseMs,
  publishTimeoutMs: 900,
};

/** Two relays in two processes, compared with one. The broker is the bottleneck: 20 ms for each batch of 500. */
export const scaleOut: Benchmark = {
  names: [name],
  async measure(run) {
    const box = await boxOf(run, "ours");
    if (!(await twoShare(run, box))) return [missing(name, "not yet: of two relays one works and one stands by")];
    const rates = await alternate(run.rounds, { two: () => rateOf(2, run, box), one: () => rateOf(1, run, box) });
    return [compared(name, "rows/s", rates.two, "one relay", rates.one)];
  },
};

async function rateOf(count: number, run: Run, box: Box): Promise<number> {
  const expected = run.share(rows);
  const relays = start(count, run, box);
  try {
    await haveJoined(relays, box);
    const before = total(relays);
    await box.fill(expected);
    const started = performance.now();
    await relays.until(() => total(relays) - before >= expected, drainLimitMs);
    await relays.stop();
    return expected / ((performance.now() - started) / 1000);
  } finally {
    await relays.stop();
  }
}

async function twoShare(run: Run, box: Box): Promise<boolean> {
  const relays = start(2, run, box);
  try {
    return await haveJoined(relays, box).then(
      () => true,
      () => false,
    );
  } finally {
    await relays.stop();
  }
}

/** Resolves when every relay has sent something, everything is sent, and the lanes have had time to spread evenly. */
async function haveJoined(relays: RelayProcesses, box: Box): Promise<void> {
  await box.empty();
  let filled = 0;
  const deadline = performance.now() + joinLimitMs;
  while (relays.each.some(({ sent }) => sent === 0)) {
    if (performance.now() > deadline) throw new Error("not all relays have work");
    await box.fill(warmUpRows);
    filled += warmUpRows;
    await relays.until(() => total(relays) >= filled, drainLimitMs);
  }
  await sleep(leaseMs / 2);
}

function start(count: number, run: Run, box: Box): RelayProcesses {
  const { url, schema } = box;
  return startRelayProcesses(count, { url, schema, callMs, options: knownRelayOptions(wished) }, run.ending);
}

function total({ each }: RelayProcesses): number {
  return each.reduce((sum, { sent }) => sum + sent, 0);
}
