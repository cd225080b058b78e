import { type Cuttable, cuttable, describeOnEach, type TransportHarness, transportSuite } from "@postbox/testkit";
import { type ChannelModel, connect, type GetMessage } from "amqplib";
import { afterAll, beforeAll } from "vitest";
import type { Receiver } from "../../transport.js";
import { fromAmqp } from "./amqp-message.js";
import { type RabbitmqSender, rabbitmqReceiver, rabbitmqSender } from "./index.js";
import { routeOf } from "./route.js";
import { bindQueue, prepareQueue } from "./topology.js";

describeOnEach("rabbitmq", ({ url }) => {
  let admin: ChannelModel;
  const queues = new Set<string>();
  const exchanges = new Set<string>();
  beforeAll(async () => {
    admin = await connect(url);
  });
  afterAll(async () => {
    const channel = await admin.createChannel();
    for (const queue of queues) {
      for (const name of [queue, `${queue}.parked`]) await channel.deleteQueue(name);
      for (let ms = 64; ms <= 65_536; ms *= 2) await channel.deleteQueue(`${queue}.wait.${ms}`);
    }
    for (const exchange of exchanges) await channel.deleteExchange(exchange);
    await admin.close();
  });

  for (const mode of ["binary", "structured"] as const) {
    transportSuite({
      name: `rabbitmq, ${mode}`,
      features: {
        keepsOrder: false,
        unroutable: true,
        exactAttempts: true,
        releaseUncounted: false,
        prefetch: true,
        prefetchBytes: false,
        outage: true,
      },
      async create(): Promise<TransportHarness> {
        const way = await cuttable(url);
        const ways = new Map<Receiver, Cuttable>();
        const senders: RabbitmqSender[] = [];
        return {
          sender() {
            const sender = rabbitmqSender({ url: way.url, mode });
            senders.push(sender);
            return sender;
          },
          receiver({ queue, prefetch }) {
            queues.add(queue);
            let own: Receiver | undefined;
            const opened = cuttable(url);
            const receiver: Receiver = {
              name: "rabbitmq",
              async receive(subscription, signal) {
                for (const { topic } of subscription.events) exchanges.add(topic);
                const through = await opened;
                ways.set(receiver, through);
                own = rabbitmqReceiver({ url: through.url, queue, ...(prefetch && { prefetch }) });
                await own.receive(subscription, signal);
              },
            };
            return receiver;
          },
          async bind(queue, events) {
            queues.add(queue);
            for (const { topic } of events) exchanges.add(topic);
            await prepareQueue(admin, { queue, queueType: "quorum", deadLetter: false }, "declare");
            await bindQueue(admin, queue, events.map(routeOf), "declare");
          },
          async crash(receiver) {
            // What was written before it dies has left the process.
            await new Promise((resolve) => setTimeout(resolve, 30));
            ways.get(receiver)?.cut();
          },
          async parked(queue) {
            const channel = await admin.createChannel();
            const found: GetMessage[] = [];
            for (;;) {
              const raw = await channel.get(`${queue}.parked`);
              if (raw === false) break;
              found.push(raw);
            }
            const parked = found.map((raw) => ({
              message: fromAmqp(raw as Parameters<typeof fromAmqp>[0], {
                exchange: "",
                unprefixed: false,
                maxMessageBytes: 1e9,
              }),
              reason: String(raw.properties.headers?.["postbox-reason"]),
            }));
            channel.nackAll(true);
            await channel.close();
            return parked;
          },
          async down() {
            way.cut();
          },
          async up() {
            way.mend();
          },
          async close() {
            await Promise.allSettled([...senders.map((sender) => sender.close())]);
            way.close();
            for (const each of ways.values()) each.close();
          },
        };
      },
    });
  }
});
