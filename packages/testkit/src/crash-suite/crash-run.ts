import {
  constant,
  createOutbox,
  createRelay,
  createRouter,
  defineEvent,
  type Failpoint,
  inbox,
  outboxOutputs,
  type Relay,
  type RunsReceiver,
  type Runtime,
  type StandardSchema,
  type Store,
  transaction,
} from "postbox";
import { type MemoryBroker, type MemoryReceiver, memoryBroker } from "postbox/memory";
import { freezeAt } from "../freeze-at.js";
import type { StoreHarness, StoreHarnessContents, StoreProcess } from "../store-suite/store-harness.js";
import { type TelemetryLog, telemetryLog } from "../telemetry-log.js";

interface Order {
  readonly order: string;
}
const schema: StandardSchema<Order> = {
  "~standard": { version: 1, vendor: "testkit", validate: (value) => ({ value: value as Order }) },
};
const orderEvent = (type: string) => defineEvent({ type, schema, key: ({ order }) => `key-${order.length % 3}` });
const Placed = orderEvent("crash.Placed");
const Handled = orderEvent("crash.Handled");

const orders = Array.from({ length: 12 }, (_, n) => `order-${"i".repeat(n + 1)}`);
const timing = { leaseMs: 3_000, pollIntervalMs: 20, publishTimeoutMs: 900, batchSize: 4, backoff: constant(1) };

export interface CrashRun {
  readonly orders: readonly string[];
  readonly effects: readonly string[];
  readonly contents: StoreHarnessContents;
}

/**
 * Orders are placed, relayed, handled and audited, with one step written down in the user's own table at each place.
 * The one whose failpoint it is dies there; another takes its place and finishes.
 */
export async function crashRun<Tx>(harness: StoreHarness<Tx>, failpoint: Failpoint, times: number): Promise<CrashRun> {
  const flow = new Flow(harness);
  const { runtime, reached } = freezeAt(failpoint, { times });
  const role = failpoint.startsWith("outbox.") ? "producer" : failpoint.startsWith("relay.") ? "relay" : "consumer";
  const mortal = (which: typeof role) => (which === role ? runtime : {});

  const consumer = await flow.consumer(mortal("consumer"));
  const auditor = await flow.auditor();
  const relay = await flow.relay(mortal("relay"));
  const producer = await flow.producer(mortal("producer"));
  void producer.place(orders);
  if (failpoint === "relay.released") {
    await flow.log.until("relay.settled");
    void relay.relay.stop();
  }
  await reached;

  const victim = { producer, relay, consumer }[role];
  await victim.kill();
  await harness.advance(timing.leaseMs);
  const heirs = {
    producer: async () => {
      const heir = await flow.producer({});
      // What the dead one had committed is there; only the rest is placed again, as a retrying client would.
      const placed = new Set(await harness.effects());
      await heir.place(orders.filter((order) => !placed.has(`placed ${order}`)));
      return heir;
    },
    relay: () => flow.relay({}),
    consumer: () => flow.consumer({}),
  };
  const heir = await heirs[role]();

  const audited = new Set<string>();
  await flow.log.until((event) => {
    if (event.name === "delivery.acked" && event.consumer === "audit") audited.add(event.id);
    return audited.size === orders.length;
  }, `${orders.length} audited orders`);
  for (const survivor of [producer, consumer, relay, auditor].filter((one) => one !== victim)) await survivor.end();
  await heir.end();
  return { orders, effects: await harness.effects(), contents: await harness.contents("outbox") };
}

/** Something that runs in a process of its own: `end` stops it as it should, `kill` does not. */
interface Running {
  end(): Promise<void>;
  kill(): Promise<void>;
}

class Flow<Tx> {
  readonly log: TelemetryLog = telemetryLog();
  readonly #harness: StoreHarness<Tx>;
  readonly #broker: MemoryBroker = memoryBroker();

  constructor(harness: StoreHarness<Tx>) {
    this.#harness = harness;
    this.#broker.bind("handle", [Placed]);
    this.#broker.bind("audit", [Handled]);
  }

  async producer(runtime: Partial<Runtime>): Promise<Running & { place(orders: readonly string[]): Promise<void> }> {
    const process = await this.#process();
    const outbox = createOutbox(process.store, { source: "/producer", runtime });
    return {
      place: async (wanted) => {
        for (const order of wanted) {
          await process.store.transaction(async (tx) => {
            await this.#harness.effect(tx, `placed ${order}`);
            await outbox.in(tx).publish(Placed, { order });
          });
        }
      },
      end: () => process.kill(),
      kill: () => process.kill(),
    };
  }

  async relay(runtime: Partial<Runtime>): Promise<Running & { readonly relay: Relay }> {
    const process = await this.#process();
    const { telemetry } = this.log;
    const relay = createRelay(process.store, this.#broker.sender(), { ...timing, telemetry, runtime });
    relay.start();
    return {
      relay,
      end: async () => {
        await relay.stop();
        await process.kill();
      },
      kill: () => process.kill(),
    };
  }

  async consumer(runtime: Partial<Runtime>): Promise<Running> {
    const process = await this.#process();
    const { telemetry } = this.log;
    const store: Store = process.store;
    const router = createRouter("handle", { telemetry, runtime, backoff: constant(1) })
      .use(transaction(store))
      .use(inbox(store))
      .use(outboxOutputs(createOutbox(store, { source: "/consumer" })))
      .on(Placed, async ({ order }, { tx }) => {
        await this.#harness.effect(tx as Tx, `handled ${order}`);
        return [Handled.message({ order })];
      });
    return this.#running(process, router);
  }

  async auditor(): Promise<Running> {
    const process = await this.#process();
    const store: Store = process.store;
    const router = createRouter("audit", { telemetry: this.log.telemetry, backoff: constant(1) })
      .use(transaction(store))
      .use(inbox(store))
      .on(Handled, ({ order }, { tx }) => this.#harness.effect(tx as Tx, `audited ${order}`));
    return this.#running(process, router);
  }

  #running(process: StoreProcess<Tx>, router: RunsReceiver): Running {
    const receiver: MemoryReceiver = this.#broker.receiver();
    router.start(receiver);
    return {
      end: async () => {
        await router.stop();
        await process.kill();
      },
      kill: async () => {
        receiver.crash();
        await process.kill();
      },
    };
  }

  #process(): Promise<StoreProcess<Tx>> {
    if (this.#harness.process === undefined) throw new Error("the feature 'processes' needs harness.process()");
    return this.#harness.process();
  }
}
