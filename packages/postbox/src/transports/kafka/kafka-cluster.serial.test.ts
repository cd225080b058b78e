import { randomUUID } from "node:crypto";
import { canRunKafka, type DisposableServer, disposableKafkas } from "@postbox/testkit/servers";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { constant } from "../../backoff.js";
import { createMessage, type Message } from "../../message/message.js";
import { silent } from "../../telemetry/console.js";
import type { Outcome, Sender } from "../../transport.js";
import type { KafkaCluster } from "./client.js";
import { openCluster } from "./connection.js";
import { kafkaReceiver, kafkaSender } from "./index.js";
import { createTopics } from "./topology.js";

const never = new AbortController().signal;
const patience = { timeout: 60_000 };

describe.skipIf(!canRunKafka())("a Kafka of three brokers", () => {
  let brokers: readonly DisposableServer[] = [];
  let admin: KafkaCluster;
  let url: string;
  beforeAll(async () => {
    brokers = await disposableKafkas(3);
    url = `kafka://${brokers.map((broker) => broker.url.slice("kafka://".length)).join()}`;
    admin = await openCluster({ url }, () => {});
  }, 180_000);
  afterAll(async () => {
    admin?.close();
    for (const broker of brokers) await broker.stop();
  }, 120_000);

  async function topicOf(partitions: number, replicas: number): Promise<string> {
    const topic = `cluster-${randomUUID()}`;
    await createTopics(admin, [topic], { partitions, replicas });
    await expect.poll(async () => (await leadersOf(topic)).filter((leader) => leader > 0).length).toBe(partitions);
    return topic;
  }

  async function leadersOf(topic: string): Promise<number[]> {
    const { topics } = await admin.metadata([topic]);
    return (topics[0]?.partitions ?? []).map(({ leader }) => leader);
  }

  const messageTo = (topic: string, n: number, keys: number) =>
    createMessage({
      id: `m${n}`,
      source: "/s",
      type: `${topic}.A`,
      topic,
      key: `k${n % keys}`,
      data: Buffer.from(`${n}`),
    });

  async function outcomesOf(sender: Sender, messages: readonly Message[]): Promise<readonly Outcome[]> {
    const outcomes: Outcome[] = [];
    const settled = (index: number, outcome: Outcome) => {
      outcomes[index] = outcome;
    };
    await sender.send(messages, settled, never);
    return outcomes;
  }

  /** Acts like a relay: sends what was not sent again, and nothing of a key before what is before it. */
  async function sendAll(sender: Sender, messages: readonly Message[]): Promise<void> {
    const giveUp = Date.now() + 120_000;
    for (let open = messages; open.length > 0; ) {
      if (Date.now() > giveUp) throw new Error(`${open.length} of ${messages.length} were not sent`);
      const outcomes: Outcome[] = [];
      const settled = (index: number, outcome: Outcome) => {
        outcomes[index] = outcome;
      };
      await sender.send(open, settled, never).catch(() => {});
      const left = open.filter((_, index) => outcomes[index]?.status !== "sent");
      if (left.length > 0) await new Promise((resolve) => setTimeout(resolve, 20));
      open = left;
    }
  }

  it("nothing is lost, and keys stay in order, while leaders are killed under load", { timeout: 240_000 }, async () => {
    const topic = await topicOf(6, 3);
    await using sender = kafkaSender({ url, telemetry: silent, publishTimeoutMs: 15_000 });
    const first = new Map<string, number[]>();
    const seen = new Set<string>();
    const stopping = new AbortController();
    const receiver = kafkaReceiver({ url, telemetry: silent, heartbeatMs: 200, backoff: constant(50) });
    const running = receiver.receive(
      {
        consumer: topic,
        events: [{ topic, type: `${topic}.A` }],
        async deliver({ message, ack }) {
          const { id, key = "" } = message;
          if (!seen.has(id)) first.set(key, [...(first.get(key) ?? []), Number(message.data.toString())]);
          seen.add(id);
          await ack();
        },
      },
      stopping.signal,
    );
    try {
      let sent = 0;
      const sendMore = async () => {
        const messages = Array.from({ length: 500 }, (_, n) => messageTo(topic, sent + n, 40));
        sent += 500;
        await sendAll(sender, messages);
      };
      // The group's own topic needs all brokers to be made.
      await sendMore();
      await expect.poll(() => seen.size, patience).toBe(500);
      for (let round = 0; round < 2; round++) {
        const leader = (await leadersOf(topic))[0] as number;
        const killed = brokers[leader - 1];
        let restarted = false;
        const restarting = (async () => {
          await killed?.kill();
          await expect.poll(async () => (await leadersOf(topic))[0] !== leader, patience).toBe(true);
          await killed?.restart();
          restarted = true;
        })();
        while (!restarted) await sendMore();
        await restarting;
        await sendMore();
      }
      await expect.poll(() => seen.size, { timeout: 90_000 }).toBe(sent);
      for (const numbers of first.values()) expect(numbers).toEqual([...numbers].sort((a, b) => a - b));
    } finally {
      stopping.abort();
      await running;
    }
  });

  it("only messages of partitions without a leader are unavailable, and are sent when it is back", {
    timeout: 180_000,
  }, async () => {
    const topic = await topicOf(6, 1);
    await using sender = kafkaSender({ url, telemetry: silent });
    const messages = Array.from({ length: 60 }, (_, n) => messageTo(topic, n, 60));
    expect((await outcomesOf(sender, messages)).every(({ status }) => status === "sent")).toBe(true);
    const leaders = await leadersOf(topic);
    const lost = leaders[0] as number;
    await brokers[lost - 1]?.kill();
    const again = messages.map((message, n) => ({ ...message, id: `again-${n}` }));
    const outcomes = await outcomesOf(sender, again);
    const partitionOf = (message: Message) => Number(sender.scopeOf?.(message)?.split("/")[1]);
    expect(outcomes.map(({ status }) => status)).toEqual(
      again.map((message) => (leaders[partitionOf(message)] === lost ? "unavailable" : "sent")),
    );
    const keyless = Array.from({ length: 12 }, (_, n) => {
      const { key: _key, ...rest } = messageTo(topic, 1000 + n, 1);
      return rest;
    });
    await expect
      .poll(async () => (await outcomesOf(sender, keyless)).map(({ status }) => status), patience)
      .toEqual(keyless.map(() => "sent"));
    await brokers[lost - 1]?.restart();
    const left = again.filter((_, index) => outcomes[index]?.status !== "sent");
    expect(left.length).toBeGreaterThan(0);
    await expect
      .poll(async () => (await outcomesOf(sender, left)).map(({ status }) => status), patience)
      .toEqual(left.map(() => "sent"));
  });
});
