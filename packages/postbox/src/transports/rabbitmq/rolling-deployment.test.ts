import { type TelemetryLog, telemetryLog } from "@postbox/testkit";
import { describeOnEach } from "@postbox/testkit/servers";
import { connect } from "amqplib";
import {
  createOutbox,
  createPublisher,
  createRouter,
  defineEvent,
  durableInbox,
  exponential,
  inbox,
  inboxOf,
  type PublishError,
  type StandardSchema,
  transaction,
} from "postbox";
import { type MemoryTransaction, memoryStore } from "postbox/memory";
import { expect, it, onTestFinished } from "vitest";
import { rabbitmqParkingLot, rabbitmqReceiver, rabbitmqSender } from "./index.js";

interface Step {
  readonly order: string;
  readonly n: number;
}
const schema: StandardSchema<Step> = {
  "~standard": { version: 1, vendor: "test", validate: (value) => ({ value: value as Step }) },
};
const orders = Array.from({ length: 20 }, (_, n) => `order-${n}`);

/** The new code handles a type that the old code does not know, while both consume the same queue. */
describeOnEach("rabbitmq", ({ url }) => {
  it.each([
    // One process consumes the queue and stores, so that effects follow the order of the queue.
    { mode: "durableInbox", singleActiveConsumer: true },
    { mode: "durableInbox", singleActiveConsumer: false },
    { mode: "inbox", singleActiveConsumer: false },
    { mode: "none", singleActiveConsumer: false },
  ] as const)(
    "parks nothing, $mode, single active consumer: $singleActiveConsumer",
    async (how) => {
      const topic = `test.${crypto.randomUUID()}`;
      const queue = `queue.${topic}`;
      const key = ({ order }: Step) => order;
      const Placed = defineEvent({ type: `${topic}.Placed`, schema, key });
      const Shipped = defineEvent({ type: `${topic}.Shipped`, schema, key });
      await removedAfterwards(queue, topic);
      const store = memoryStore();
      const effects = createOutbox(store, { source: "/effects" });
      const logs: TelemetryLog[] = [];

      function instance(version: "old" | "new") {
        const log = telemetryLog();
        logs.push(log);
        const receiver = rabbitmqReceiver({ url, queue, singleActiveConsumer: how.singleActiveConsumer, prefetch: 10 });
        const options = {
          backoff: exponential({ initialMs: 10, maxMs: 60 }),
          maxAttempts: 1,
          telemetry: log.telemetry,
        };
        const timing = { leaseMs: 3_000, pollIntervalMs: 20 };
        const router = createRouter(queue, options).use(transaction(store));
        if (how.mode === "inbox") router.use(inbox(store, timing));
        if (how.mode === "durableInbox") router.use(durableInbox(store, timing));
        const write = async (step: Step, { tx }: { readonly tx: MemoryTransaction }) => {
          await effects.in(tx).send({ type: "effect", key: step.order, data: Buffer.from(JSON.stringify(step)) });
        };
        router.on(Placed, write);
        if (version === "new") router.on(Shipped, write);
        router.start(receiver);
        onTestFinished(() => router.stop().catch(() => {}));
        return { log, stop: () => router.stop() };
      }

      const sender = rabbitmqSender({ url });
      onTestFinished(() => sender.close());
      const publisher = createPublisher(sender, { source: "/orders" });
      let published = 0;
      /**
       * Publishes one step of every order per round, alternating between the types. One call per round keeps their
       * order in the queue.
       */
      async function load(types: readonly (typeof Placed | typeof Shipped)[], rounds: number): Promise<void> {
        for (let round = 0; round < rounds; round++) {
          const n = published++;
          const event = types[n % types.length] as typeof Placed;
          await publisher.publishAll(orders.map((order) => event.message({ order, n })));
        }
      }
      /** Publishes probes until a consumer has bound its queue. */
      async function bound(event: typeof Placed | typeof Shipped): Promise<void> {
        const isRouted = () =>
          publisher.publish(event, { order: "probe", n: 0 }).then(
            () => true,
            (error: PublishError) => {
              if (error.failures?.[0]?.error.message.includes("unroutable")) return false;
              throw error;
            },
          );
        while (!(await isRouted()));
      }
      const handled = () =>
        store
          .contents("outbox")
          .pending.map(({ data }) => JSON.parse(`${Buffer.from(data)}`) as Step)
          .filter(({ order }) => order !== "probe");
      const untilHandled = (count: number) =>
        expect.poll(() => handled().length, { timeout: 40_000, interval: 20 }).toBeGreaterThanOrEqual(count);

      await sender.setup([Placed]);
      const old = [instance("old"), instance("old")];
      await bound(Placed);
      await load([Placed], 10);
      const first = instance("new");
      await bound(Shipped);
      await load([Shipped, Placed], 20);
      // Wait until both versions have received the new type. The load continues for the rest of the deployment.
      await Promise.all(
        old.slice(0, how.singleActiveConsumer ? 0 : 2).map(({ log }) => log.until("consumer.types-differ")),
      );
      await first.log.until("delivery.handled");
      await old[0]?.stop();
      instance("new");
      await load([Shipped, Placed], 20);
      await old[1]?.stop();
      await load([Shipped, Placed], 10);
      await untilHandled(published * orders.length);

      const found = handled();
      expect(logs.flatMap((log) => log.of("delivery.parked"))).toEqual([]);
      expect(await rabbitmqParkingLot({ url, queue }).count()).toBe(0);
      expect(store.contents(inboxOf(queue)).parked).toEqual([]);
      for (const order of orders) {
        const steps = found.filter((step) => step.order === order).map(({ n }) => n);
        const inOrder = Array.from({ length: published }, (_, n) => n);
        expect(how.singleActiveConsumer ? steps : [...steps].sort((a, b) => a - b)).toEqual(inOrder);
      }
      for (const log of logs.slice(0, 2)) expect(log.of("consumer.types-differ").length).toBeLessThanOrEqual(1);
    },
    90_000,
  );

  async function removedAfterwards(queue: string, topic: string): Promise<void> {
    const admin = await connect(url);
    onTestFinished(async () => {
      const channel = await admin.createChannel();
      for (const name of ["", ".parked", ".wait.64"]) await channel.deleteQueue(queue + name);
      await channel.deleteExchange(topic);
      await admin.close();
    });
  }
});
