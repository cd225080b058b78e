import { type Cuttable, cuttable, type DisposableRabbitmq, describeOnEach, disposable } from "@postbox/testkit/servers";
import { type TransportHarness, transportSuite } from "@postbox/testkit/suites";
import { type ChannelModel, connect, type GetMessage } from "amqplib";
import { afterAll, beforeAll, describe } from "vitest";
import { constant } from "../../backoff.js";
import type { Message } from "../../message/message.js";
import type { Receiver, Subscription } from "../../transport.js";
import { type ContentMode, fromAmqp } from "./amqp-message.js";
import { type RabbitmqReceiver, type RabbitmqSender, rabbitmqReceiver, rabbitmqSender } from "./index.js";
import { type Route, routeOf } from "./route.js";
import { bindQueue, prepareQueue } from "./topology.js";

const features = {
  keepsOrder: false,
  unroutable: true,
  exactAttempts: true,
  settlesEach: true,
  selectsTypes: true,
  competing: true,
  streams: false,
  revokes: true,
  releaseUncounted: true,
  prefetch: true,
  prefetchBytes: true,
  singleActive: true,
  maxMessageBytes: true,
  routes: true,
  onUnroutable: true,
  unbinds: true,
  scopes: false,
  outage: true,
  reconnects: true,
  connectionBound: true,
  health: true,
  passwords: true,
  refusesParking: true,
} as const;

const maxMessageBytes = 900_000;

describeOnEach("rabbitmq", ({ url }) => {
  const broker = testBroker(() => url);
  for (const mode of ["binary", "structured"] as const) {
    transportSuite({
      name: `rabbitmq, ${mode}`,
      features: { ...features, blocks: false, restarts: false },
      create: () => broker.harness(mode),
    });
  }
});

describe("a RabbitMQ of its own", () => {
  let server: DisposableRabbitmq;
  beforeAll(async () => {
    server = await disposable("rabbitmq");
  });
  // Registered before the hooks of the broker, because hooks run in reverse order.
  afterAll(() => server?.stop());
  const broker = testBroker(() => server.url);
  transportSuite({
    name: "rabbitmq that may be killed",
    features: { ...features, blocks: true, restarts: true },
    create: async () => {
      const harness = await broker.harness("binary");
      // Triggers the memory alarm: the broker always uses more than this limit.
      const block = () => server.control("set_vm_memory_high_watermark", "absolute", "1MB");
      const unblock = () => server.control("set_vm_memory_high_watermark", "0.4");
      let blocked = false;
      return {
        ...harness,
        async block() {
          blocked = true;
          await block();
        },
        async unblock() {
          await unblock();
          blocked = false;
        },
        async restart() {
          await broker.leave();
          await server.keepQueues();
          await server.kill();
          await server.restart();
          await broker.enter();
        },
        async close() {
          // If a test failed while the broker was blocked, the next test and the closing connections need it unblocked.
          if (blocked) await unblock();
          await harness.close();
        },
      };
    },
  });
});

/** A broker with an admin connection, for what tests do behind the transport's back. */
function testBroker(url: () => string) {
  let admin: ChannelModel;

  const enter = async () => {
    admin = await connect(url());
    admin.on("error", () => {});
  };
  const leave = () => admin.close();
  beforeAll(enter);
  afterAll(leave);

  /**
   * Deletes queues right after each test. A quorum queue uses three file descriptors, and a broker without free ones
   * rejects connections.
   */
  async function remove(queues: Iterable<string>, exchanges: Iterable<string>): Promise<void> {
    const channel = await admin.createChannel();
    for (const queue of queues) {
      for (const name of [queue, `${queue}.parked`]) await channel.deleteQueue(name);
      for (let ms = 64; ms <= 65_536; ms *= 2) await channel.deleteQueue(`${queue}.wait.${ms}`);
    }
    for (const exchange of exchanges) await channel.deleteExchange(exchange);
    await channel.close();
  }

  /** Replaces this queue with one that rejects every message. */
  async function fill(queue: string): Promise<void> {
    const channel = await admin.createChannel();
    await channel.deleteQueue(queue);
    const none = { "x-queue-type": "classic", "x-max-length": 0, "x-overflow": "reject-publish" };
    await channel.assertQueue(queue, { arguments: none });
    await channel.close();
  }

  async function harness(mode: ContentMode): Promise<TransportHarness> {
    const way = await cuttable(url());
    const ways = new Map<Receiver, Cuttable>();
    const senders: RabbitmqSender[] = [];
    const queues = new Set<string>();
    const exchanges = new Set<string>();
    return {
      maxMessageBytes,
      sender({ route, onUnroutable = "park" } = {}) {
        const routed = route && {
          route: (message: Message) => route(message.id, () => routeOf(message)) as Route,
        };
        const sender = rabbitmqSender({ url: way.url, mode, maxMessageBytes, onUnroutable, ...(routed as object) });
        senders.push(sender);
        return sender;
      },
      receiver({ queue, prefetch, prefetchBytes, singleActive = false, parks = true }) {
        queues.add(queue);
        const opened = cuttable(url());
        let own: RabbitmqReceiver | undefined;
        const made = async ({ events }: Pick<Subscription, "events">) => {
          for (const { topic } of events) exchanges.add(topic);
          const through = await opened;
          ways.set(receiver, through);
          const options = { queue, singleActiveConsumer: singleActive, backoff: constant(10) };
          const bounds = { ...(prefetch && { prefetch }), ...(prefetchBytes && { prefetchBytes }) };
          const topology = parks ? "declare" : "check";
          own = rabbitmqReceiver({ url: through.url, topology, ...options, ...bounds });
          return own;
        };
        const receiver: Receiver = {
          name: "rabbitmq",
          health: () => own?.health() ?? { status: "idle", since: new Date() },
          prepare: async (subscription) => (await made(subscription)).prepare?.(subscription),
          receive: async (subscription, signal) => (await made(subscription)).receive(subscription, signal),
        };
        return receiver;
      },
      async bind(queue, events, { singleActive = false, parks = true } = {}) {
        queues.add(queue);
        for (const { topic } of events) exchanges.add(topic);
        const options = { queue, queueType: "quorum", singleActiveConsumer: singleActive } as const;
        await prepareQueue(admin, options, "declare");
        if (!parks) await fill(`${queue}.parked`);
        await bindQueue(admin, queue, events.map(routeOf), "declare");
      },
      async unbind(queue, events) {
        const channel = await admin.createChannel();
        for (const { exchange, routingKey } of events.map(routeOf)) {
          await channel.unbindQueue(queue, exchange, routingKey);
        }
        await channel.close();
      },
      async crash(receiver) {
        // Gives earlier writes time to leave the process and the proxy before the cut, even if this process was just
        // stalled.
        await new Promise((resolve) => setTimeout(resolve, 30));
        for (let turns = 0; turns < 10; turns++) await new Promise((resolve) => setImmediate(resolve));
        ways.get(receiver)?.cut();
      },
      async interrupt(receiver) {
        ways.get(receiver)?.cut();
        ways.get(receiver)?.mend();
      },
      parked: (queue) => parkedFrom(admin, queue),
      intruders(queue, telemetry) {
        const wrong = new URL(url());
        const password = `wrong-${crypto.randomUUID()}`;
        [wrong.username, wrong.password] = ["nobody", password];
        const sender = rabbitmqSender({ url: wrong.href, telemetry });
        senders.push(sender);
        const receiver = rabbitmqReceiver({ url: wrong.href, queue, telemetry, backoff: constant(10) });
        return { password, sender, receiver };
      },
      async down() {
        way.cut();
      },
      async up() {
        way.mend();
      },
      async close() {
        await Promise.allSettled([...senders.map((sender) => sender.close())]);
        await remove(queues, exchanges);
        way.close();
        for (const each of ways.values()) each.close();
      },
    };
  }
  return { harness, enter, leave };
}

async function parkedFrom(admin: ChannelModel, queue: string) {
  const channel = await admin.createChannel();
  const found: GetMessage[] = [];
  for (;;) {
    const raw = await channel.get(`${queue}.parked`);
    if (raw === false) break;
    found.push(raw);
  }
  const parked = found.map((raw) => ({
    message: fromAmqp(raw as Parameters<typeof fromAmqp>[0], { exchange: "", unprefixed: false, maxMessageBytes: 1e9 }),
    reason: String(raw.properties.headers?.["postbox-reason"]),
  }));
  channel.nackAll(true);
  await channel.close();
  return parked;
}
