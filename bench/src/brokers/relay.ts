import { createRelay } from "postbox";
import { compared } from "../figure.js";
import { type Box, createBox, createHotTemplate, template } from "../outbox/box.js";
import { drainByHand } from "../outbox/by-hand.js";
import type { Benchmark, Run } from "../part.js";
import { alternate } from "../rounds.js";
import { within } from "../time-limit.js";
import type { Broker, BrokerKind } from "./broker.js";

const rows = 50_000;
const warmUpRows = 10_000;
const limitMs = 60_000;

/** A relay from a box to a broker with all confirms, compared with a loop that reads, publishes, waits and deletes. */
export function relay(kind: BrokerKind, openOf: (run: Run) => Promise<Broker>): Benchmark {
  const [even, hot] = [`broker.${kind.name}.relay.vs-bare`, `broker.${kind.name}.relay.hot-key`];
  return {
    names: [even, hot],
    async measure(run) {
      const broker = await openOf(run);
      const ours = await boxOf(run, "ours");
      const bare = await boxOf(run, "bare");
      const hotTemplate = await run.once("hot template", () => createHotTemplate(ours));
      const relayed = (from: string) => (count: number) =>
        filled(ours, broker, count, from, () => relayAll(ours, broker, count));
      const byHand = (from: string) => (count: number) =>
        filled(bare, broker, count, from, () => drainByHand(bare, count, broker.publish));
      for (const side of [relayed(template), byHand(template)]) await side(warmUpRows);
      const count = run.share(rows);
      const rates = await alternate(run.rounds, {
        even: () => relayed(template)(count),
        evenBare: () => byHand(template)(count),
        hot: () => relayed(hotTemplate)(count),
        hotBare: () => byHand(hotTemplate)(count),
      });
      return [
        compared(even, "rows/s", rates.even, broker.client, rates.evenBare),
        compared(hot, "rows/s", rates.hot, broker.client, rates.hotBare),
      ];
    },
  };
}

function boxOf(run: Run, side: "ours" | "bare"): Promise<Box> {
  return run.once(`broker box ${side}`, () => createBox(run.database, `postbox_broker_${side}`));
}

/** Returns rows per second. Throws if a row is left, or if the broker does not have exactly `count` messages. */
async function filled(
  box: Box,
  broker: Broker,
  count: number,
  from: string,
  drain: () => Promise<number>,
): Promise<number> {
  await broker.purge();
  await box.empty();
  await box.fill(count, from);
  const seconds = await drain();
  const [left, there] = [await box.left(), await broker.depth()];
  if (left > 0 || there !== count)
    throw new Error(`of ${count} rows ${there} are with the broker and ${left} are left`);
  return count / seconds;
}

/** Runs a relay with default options until everything is settled, then stops it. Returns the seconds it took. */
async function relayAll(box: Box, broker: Broker, count: number): Promise<number> {
  const sender = await broker.sender();
  let settled = 0;
  let reach = () => {};
  const reached = new Promise<void>((resolve) => {
    reach = resolve;
  });
  const relaying = createRelay(box.store, sender, {
    telemetry(event) {
      if (event.name !== "relay.settled") return;
      settled += event.sent;
      if (settled >= count) reach();
    },
  });
  const stop = new AbortController();
  const started = performance.now();
  const run = relaying.run(stop.signal);
  try {
    await within(limitMs, () => `${settled} of ${count} rows were settled`, Promise.race([reached, run]));
  } finally {
    stop.abort();
    await run;
  }
  const seconds = (performance.now() - started) / 1000;
  await sender.close?.();
  return seconds;
}
