import { createRouter } from "postbox";
import { compared } from "../figure.js";
import { warmRates } from "../inbox/rates.js";
import { handMadeRow } from "../outbox/by-hand.js";
import { Placed } from "../outbox/placed.js";
import type { Benchmark, Run } from "../part.js";
import { within } from "../time-limit.js";
import type { Broker, BrokerKind } from "./broker.js";

const messages = 50_000;
const publishAtOnce = 1000;
const limitMs = 60_000;

/** A router whose handler does nothing, compared with a consumer that only acks. */
export function consume(kind: BrokerKind, openOf: (run: Run) => Promise<Broker>): Benchmark {
  const name = `broker.${kind.name}.consume.vs-bare`;
  return {
    names: [name],
    async measure(run) {
      const broker = await openOf(run);
      const rates = await warmRates(run, messages, {
        ours: (count) => filled(broker, count, () => routeAll(broker, count)),
        bare: (count) => filled(broker, count, () => broker.consume(count)),
      });
      return [compared(name, "messages/s", rates.ours, broker.client, rates.bare)];
    },
  };
}

/**
 * Returns messages per second, from the connection until the broker has processed every ack. Throws if a message is
 * left in the queue.
 */
async function filled(broker: Broker, count: number, take: () => Promise<void>): Promise<number> {
  await broker.purge();
  for (let missing = count; missing > 0; missing -= publishAtOnce) {
    await broker.publish(Array.from({ length: Math.min(missing, publishAtOnce) }, handMadeRow));
  }
  const started = performance.now();
  await within(limitMs, () => "not all messages were consumed", take());
  const seconds = (performance.now() - started) / 1000;
  const left = await broker.depth();
  if (left > 0) throw new Error(`of ${count} messages ${left} are left`);
  return count / seconds;
}

async function routeAll(broker: Broker, count: number): Promise<void> {
  const stop = new AbortController();
  let handled = 0;
  const router = createRouter("bench").on(Placed, async () => {
    if (++handled === count) stop.abort();
  });
  await router.run(broker.receiver(), stop.signal);
  if (handled !== count) throw new Error(`of ${count} messages ${handled} were handled`);
}
