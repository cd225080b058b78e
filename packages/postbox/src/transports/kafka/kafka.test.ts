import { connect } from "node:net";
import { type Cuttable, cuttable, describeOnEach } from "@postbox/testkit/servers";
import { type TransportHarness, transportSuite } from "@postbox/testkit/suites";
import { afterAll, beforeAll } from "vitest";
import { constant } from "../../backoff.js";
import type { Message } from "../../message/message.js";
import type { Receiver, Subscription } from "../../transport.js";
import type { KafkaCluster } from "./client.js";
import { openCluster } from "./connection.js";
import {
  type KafkaContentMode,
  type KafkaReceiver,
  type KafkaSender,
  kafkajsClient,
  kafkaReceiver,
  kafkaSender,
} from "./index.js";
import { createTopics } from "./topology.js";

const features = {
  keepsOrder: true,
  // A topic takes every type.
  unroutable: false,
  onUnroutable: false,
  exactAttempts: false,
  settlesEach: false,
  selectsTypes: false,
  competing: false,
  streams: true,
  revokes: true,
  releaseUncounted: true,
  prefetch: true,
  prefetchBytes: true,
  singleActive: false,
  maxMessageBytes: true,
  routes: true,
  unbinds: false,
  scopes: false,
  outage: true,
  reconnects: true,
  connectionBound: false,
  health: true,
  passwords: false,
  refusesParking: false,
  blocks: false,
  restarts: false,
} as const;

const maxMessageBytes = 900_000;

describeOnEach("kafka", ({ url }) => {
  const broker = testBroker(() => url);
  for (const mode of ["binary", "structured"] as const) {
    transportSuite({ name: `kafka, ${mode}`, features, create: () => broker.harness(mode) });
  }
});

/** Opens every connection through a proxy. */
function through(way: Cuttable) {
  const { port } = new URL(way.url);
  return kafkajsClient({
    socketFactory: ({ onConnect }) => connect({ host: "127.0.0.1", port: Number(port) }, onConnect),
  });
}

/** A broker with connections of its own, for what tests do behind the transport's back. */
function testBroker(url: () => string) {
  let admin: KafkaCluster;

  const enter = async () => {
    admin = await openCluster({ url: url() }, () => {});
    await admin.metadata(["postbox"]);
  };
  const leave = () => admin.close();
  beforeAll(enter);
  afterAll(leave);

  /** Acts like the end of a session: the group gives the partitions of these members to others. */
  async function expel(group: string, members: ReadonlySet<string>): Promise<void> {
    const { node } = await admin.coordinatorOf(group);
    for (const memberId of members) await admin.leave(node, { group, memberId });
  }

  async function harness(mode: KafkaContentMode): Promise<TransportHarness> {
    const way = await cuttable(url());
    const ways = new Map<Receiver, { way: Cuttable; readonly group: string; readonly members: Set<string> }>();
    const senders: KafkaSender[] = [];
    return {
      maxMessageBytes,
      sender({ route, onUnroutable = "park" } = {}) {
        const routed = route && {
          route: (message: Message) => route(message.id, () => message.topic) as string,
        };
        const sender = kafkaSender({
          url: url(),
          client: through(way),
          mode,
          maxMessageBytes,
          onUnroutable,
          ...(routed as object),
        });
        senders.push(sender);
        return sender;
      },
      receiver({ queue, prefetch, prefetchBytes }) {
        const opened = cuttable(url());
        let own: KafkaReceiver | undefined;
        const made = async () => {
          const proxy = await opened;
          const members = new Set<string>();
          ways.set(receiver, { way: proxy, group: queue, members });
          const bounds = { ...(prefetch && { prefetch }), ...(prefetchBytes && { prefetchBytes }) };
          const timing = { heartbeatMs: 100, sessionTimeoutMs: 6_000, backoff: constant(10) };
          own = kafkaReceiver({
            url: url(),
            client: remembering(through(proxy), members),
            group: queue,
            ...timing,
            ...bounds,
          });
          return own;
        };
        const receiver: Receiver = {
          name: "kafka",
          settles: "in-order",
          selects: "topic",
          health: () => own?.health() ?? { status: "idle", since: new Date() },
          prepare: async (subscription) => (await made()).prepare?.(subscription),
          receive: async (subscription: Subscription, signal) => (await made()).receive(subscription, signal),
        };
        return receiver;
      },
      async bind(_, events, { streams = 1 } = {}) {
        await createTopics(
          admin,
          events.map(({ topic }) => topic),
          { partitions: streams },
        );
      },
      async crash(receiver) {
        // Gives acknowledgements time to be committed before the cut, even if this process was just stalled.
        await new Promise((resolve) => setTimeout(resolve, 50));
        for (let turns = 0; turns < 10; turns++) await new Promise((resolve) => setImmediate(resolve));
        const found = ways.get(receiver);
        if (found === undefined) return;
        found.way.cut();
        await expel(found.group, found.members);
      },
      async interrupt(receiver) {
        ways.get(receiver)?.way.cut();
        ways.get(receiver)?.way.mend();
      },
      parked: async () => [],
      async down() {
        way.cut();
      },
      async up() {
        way.mend();
      },
      async close() {
        await Promise.allSettled([...senders.map((sender) => sender.close())]);
        way.close();
        for (const each of ways.values()) each.way.close();
      },
    };
  }
  return { harness, enter, leave };
}

/** Notes the ids under which a receiver joins its group. */
function remembering(client: ReturnType<typeof kafkajsClient>, members: Set<string>): typeof client {
  return {
    ...client,
    async open(settings) {
      const cluster = await client.open(settings);
      const join = cluster.join.bind(cluster);
      cluster.join = async (...given) => {
        const answer = await join(...given);
        if (answer.memberId !== "") members.add(answer.memberId);
        return answer;
      };
      return cluster;
    },
  };
}
