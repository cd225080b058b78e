import type { Bar } from "../bar.js";
import type { Part, Run } from "../part.js";
import type { Broker, BrokerKind } from "./broker.js";
import { consume } from "./consume.js";
import { rabbitmq } from "./rabbitmq.js";
import { relay } from "./relay.js";

const kinds: readonly BrokerKind[] = [rabbitmq];

/**
 * From PostgreSQL to each broker, and out of it: `npm run bench -- brokers`. What each name means is in
 * docs/performance.md.
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
    // Where the client does not keep the order, a key has one message at a time on its way.
    [`broker.${name}.relay.hot-key`, { atLeast: keepsOrder ? 0.75 : 0.25 }],
    [`broker.${name}.consume.vs-bare`, { atLeast: 0.75 }],
  ];
}
