import type { Bar } from "../bar.js";
import type { Part, Run } from "../part.js";
import type { Broker, BrokerKind } from "./broker.js";
import { consume } from "./consume.js";
import { kafka } from "./kafka.js";
import { rabbitmq } from "./rabbitmq.js";
import { relay } from "./relay.js";

const kinds: readonly BrokerKind[] = [rabbitmq, kafka];

/**
 * From PostgreSQL to each broker, and from each broker to a handler: `npm run bench -- brokers`. docs/performance.md
 * explains each name.
 */
export const brokers: Part = {
  name: "brokers",
  bars: Object.fromEntries(kinds.flatMap(barsOf)),
  benchmarks: kinds.flatMap((kind) => {
    const openOf = (run: Run): Promise<Broker> => run.once(`broker ${kind.name}`, () => kind.open(run.ending));
    return [relay(kind, openOf), consume(kind, openOf)];
  }),
};

function barsOf({ name, keepsOrder }: BrokerKind): readonly (readonly [string, Bar])[] {
  return [
    [`broker.${name}.relay.vs-bare`, { atLeast: 0.8 }],
    // If the client does not keep the order, the relay has one message per key in flight.
    [`broker.${name}.relay.hot-key`, { atLeast: keepsOrder ? 0.75 : 0.25 }],
    [`broker.${name}.consume.vs-bare`, { atLeast: 0.75 }],
  ];
}
