import { randomUUID } from "node:crypto";
import { telemetryLog } from "@postbox/testkit";
import { describeOnEach } from "@postbox/testkit/servers";
import { Kafka, logLevel } from "kafkajs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { constant } from "../../backoff.js";
import { defineEvent } from "../../event/define-event.js";
import { createMessage } from "../../message/message.js";
import { createRouter } from "../../router/create-router.js";
import { silent } from "../../telemetry/console.js";
import type { Delivery } from "../../transport.js";
import type { KafkaCluster, KafkaRecord } from "./client.js";
import { openCluster } from "./connection.js";
import { type KafkaReceiverOptions, kafkaReceiver, kafkaSender } from "./index.js";
import { createTopics } from "./topology.js";

const never = new AbortController().signal;
const anything = { "~standard": { version: 1, vendor: "test", validate: (value: unknown) => ({ value }) } } as const;

describeOnEach("kafka", ({ url }) => {
  let admin: KafkaCluster;
  beforeAll(async () => {
    admin = await openCluster({ url }, () => {});
  });
  afterAll(() => admin.close());

  async function topicOf(partitions = 1): Promise<string> {
    const topic = `receiver-${randomUUID()}`;
    await createTopics(admin, [topic], { partitions });
    return topic;
  }

  const record = (value: string, headers: Record<string, string> = {}): KafkaRecord => ({
    key: null,
    value: Buffer.from(value),
    headers: Object.fromEntries(Object.entries(headers).map(([name, text]) => [name, Buffer.from(text)])),
  });
  const eventHeaders = (id: string, type: string) => ({
    ce_specversion: "1.0",
    ce_id: id,
    ce_source: "/s",
    ce_type: type,
  });

  /** A topic that was just made takes nothing for a moment. */
  async function write(topic: string, ...records: readonly KafkaRecord[]): Promise<void> {
    const batch = { topic, partition: 0, sequence: 0, records };
    const codes = async () => {
      const [{ nodes }, identity] = [await admin.metadata([topic]), await admin.producerIdentity()];
      return (await admin.produce(nodes[0] as number, identity, [batch], "none")).map((each) => each.code);
    };
    await expect.poll(codes).toEqual([0]);
  }

  /** As if a member of the group had committed this. */
  async function commit(group: string, topic: string, offset: number, metadata: string): Promise<void> {
    const nobody = { group, memberId: "", generation: -1 };
    const codes = async () => {
      const { node } = await admin.coordinatorOf(group);
      const answers = await admin.commit(node, nobody, [{ topic, partition: 0, offset, metadata }]);
      return answers.map((each) => each.code);
    };
    await expect.poll(codes).toEqual([0]);
  }

  async function read(topic: string) {
    const { nodes } = await admin.metadata([topic]);
    const from = [{ topic, partition: 0, offset: 0 }];
    const [read] = await admin.fetch(nodes[0] as number, from, { maxWaitMs: 100, maxBytes: 1_000_000 });
    return read?.records ?? [];
  }

  async function committedOf(group: string, topic: string) {
    const { node } = await admin.coordinatorOf(group);
    const [committed] = await admin.committed(node, group, [{ topic, partition: 0 }]);
    return committed;
  }

  /** Runs a receiver that hands every delivery to `deliver`, until `proof` has ended. */
  async function receiving(
    topic: string,
    options: Partial<KafkaReceiverOptions> & { readonly group: string },
    deliver: (delivery: Delivery) => Promise<void>,
    prove: () => Promise<unknown>,
  ): Promise<void> {
    const stopping = new AbortController();
    const receiver = kafkaReceiver({ url, heartbeatMs: 100, telemetry: silent, ...options });
    const events = [{ topic, type: `${topic}.Placed` }];
    const running = receiver.receive({ consumer: options.group, events, deliver }, stopping.signal);
    try {
      await Promise.race([prove(), running]);
    } finally {
      stopping.abort();
      await running;
    }
  }

  describe("a record that is no message", () => {
    it("is parked with its bytes and headers before its offset is committed, and holds up nothing", async () => {
      const topic = await topicOf();
      const group = `g-${randomUUID()}`;
      await createTopics(admin, [`${topic}.parked`], { partitions: 1 });
      const poison = record("\u0000 no event", { "x-source": "web" });
      await write(topic, record("1", eventHeaders("1", "t.A")), poison, record("2", eventHeaders("2", "t.A")));
      const seen: string[] = [];
      await receiving(
        topic,
        { group },
        async ({ message, ack }) => {
          seen.push(message.id);
          await ack();
        },
        () => expect.poll(async () => [seen, (await committedOf(group, topic))?.offset]).toEqual([["1", "2"], 3]),
      );
      const [parked] = await read(`${topic}.parked`);
      expect(String(parked?.value)).toBe("\u0000 no event");
      const headers = Object.fromEntries(
        Object.entries(parked?.headers ?? {}).map(([name, each]) => [name, String(each)]),
      );
      expect(headers).toMatchObject({ "x-source": "web", "postbox-consumer": group, "postbox-origin": `${topic}/0/1` });
      expect(headers["postbox-reason"]).toContain("fromForeign");
    });

    it("stays, and is reported, while there is no topic to park it in", async () => {
      const topic = await topicOf();
      const group = `g-${randomUUID()}`;
      await write(topic, record("no event"), record("2", eventHeaders("2", "t.A")));
      const log = telemetryLog();
      const seen: string[] = [];
      await receiving(
        topic,
        { group, telemetry: log.telemetry },
        async ({ message, ack }) => {
          seen.push(message.id);
          await ack();
        },
        async () => {
          await log.until("router.failed", 1);
          await expect.poll(() => seen).toEqual(["2"]);
        },
      );
      expect(log.of("router.failed")[0]).toMatchObject({ error: { code: "topology-missing" } });
      expect((await committedOf(group, topic))?.offset).toBe(0);
    });
  });

  it("without an inbox, retries a failing message in place and parks it; its neighbours are untouched", async () => {
    const topic = await topicOf(3);
    const group = `g-${randomUUID()}`;
    const Placed = defineEvent({ type: `${topic}.Placed`, topic, schema: anything });
    const messages = Array.from({ length: 30 }, (_, n) =>
      createMessage({
        id: `m${n}`,
        source: "/s",
        type: Placed.type,
        topic,
        key: `k${n % 6}`,
        data: Buffer.from(`${n}`),
      }),
    );
    await using sender = kafkaSender({ url });
    await sender.send(messages, () => {}, never);
    const attempts: number[] = [];
    const handled: string[] = [];
    const router = createRouter(group, { maxAttempts: 3, backoff: constant(10), telemetry: silent }).on(
      Placed,
      async (_, { message, attempt }) => {
        if (message.id === "m7") {
          attempts.push(attempt);
          throw new Error("no such order");
        }
        handled.push(message.id);
      },
    );
    const stopping = new AbortController();
    const receiver = kafkaReceiver({ url, topology: "create", heartbeatMs: 100 });
    const running = router.run(receiver, stopping.signal);
    const parked = `${topic}.parked`;
    await expect.poll(async () => [handled.length, (await read(parked).catch(() => [])).length]).toEqual([29, 1]);
    stopping.abort();
    await running;
    expect(attempts).toEqual([1, 2, 3]);
    const [copy] = await read(parked);
    expect(String(copy?.headers.ce_id)).toBe("m7");
    expect(String(copy?.headers["postbox-reason"])).toContain("no such order");
    expect(String(copy?.key)).toBe("k1");
  });

  it("makes no topic unless it is asked to", async () => {
    const topic = `missing-${randomUUID()}`;
    const receiver = kafkaReceiver({ url, telemetry: silent });
    const sockets = () => process.getActiveResourcesInfo().filter((name) => name === "TCPSocketWrap").length;
    await admin.metadata([topic]);
    const before = sockets();
    const subscription = { consumer: "c", events: [{ topic, type: `${topic}.A` }], deliver: async () => {} };
    await expect(receiver.receive(subscription, never)).rejects.toMatchObject({
      name: "ConfigError",
      code: "topology-missing",
    });
    expect((await admin.metadata([topic])).topics[0]?.code).toBe(3);
    // Nothing is left that would keep the process alive.
    await expect.poll(sockets).toBe(before);
    const making = kafkaReceiver({ url, topology: "create", create: { partitions: 5 }, telemetry: silent });
    for (let twice = 0; twice < 2; twice++) await making.prepare?.(subscription);
    const { topics } = await admin.metadata([topic, `${topic}.parked`]);
    expect(topics.map(({ partitions }) => partitions.length)).toEqual([5, 5]);
  });

  it("begins with the first message that still exists, if retention has removed what comes next", async () => {
    const topic = await topicOf();
    const group = `g-${randomUUID()}`;
    const five = [1, 2, 3, 4, 5].map((n) => record(`${n}`, eventHeaders(`${n}`, "t.A")));
    await write(topic, ...five);
    await commit(group, topic, 1, "");
    const kafka = new Kafka({ brokers: [new URL(url.replace("kafka", "http")).host], logLevel: logLevel.NOTHING });
    const tools = kafka.admin();
    await tools.connect();
    // The tool deletes only from topics that it has asked for.
    await tools.fetchTopicOffsets(topic);
    await tools.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "3" }] });
    await tools.disconnect();
    const log = telemetryLog();
    const seen: string[] = [];
    await receiving(
      topic,
      { group, telemetry: log.telemetry },
      async ({ message, ack }) => {
        seen.push(message.id);
        await ack();
      },
      () => expect.poll(() => seen).toEqual(["4", "5"]),
    );
    const [told] = log.of("router.failed");
    expect(told?.error.message).toContain(`messages 1 to 2 of ${topic}/0 were removed`);
  });

  it("flags only what was handed over before its process ended", async () => {
    const topic = await topicOf();
    const group = `g-${randomUUID()}`;
    await write(topic, ...[1, 2, 3, 4].map((n) => record(`${n}`, eventHeaders(`${n}`, "t.A"))));
    await commit(group, topic, 1, "handed-over=3");
    const seen: string[] = [];
    await receiving(
      topic,
      { group },
      async ({ message, redelivered, ack }) => {
        seen.push(`${message.id} ${redelivered ?? false}`);
        await ack();
      },
      () => expect.poll(() => seen).toEqual(["2 true", "3 true", "4 false"]),
    );
  });
});
