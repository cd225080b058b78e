import { createRequire } from "node:module";
import { type Admin, Kafka, logLevel, type Producer } from "kafkajs";
import { kafkaReceiver, kafkaSender } from "postbox/kafka";
import type { Ending } from "../ending.js";
import type { ReadRow } from "../outbox/by-hand.js";
import { Placed } from "../outbox/placed.js";
import { type BrokerKind, prefetch } from "./broker.js";

const url = process.env.POSTBOX_TEST_KAFKA_URL ?? "kafka://127.0.0.1:9092";
/** A subscription names topics, so that this is the topic of the event on both sides. */
const name = Placed.topic;
const group = `postbox-bench-${process.pid}`;
const numPartitions = 12;

/** A topic of twelve partitions, and one group. */
export const kafka: BrokerKind = {
  name: "kafka",
  keepsOrder: true,

  async open(ending) {
    const client = new Kafka({ brokers: [new URL(url.replace("kafka", "http")).host], logLevel: logLevel.NOTHING });
    const admin = client.admin();
    await admin.connect();
    ending.add(() => admin.disconnect());
    await admin.createTopics({ topics: [{ topic: name, numPartitions }] });
    ending.add(() => admin.deleteTopics({ topics: [name] }));
    const producer = client.producer({ idempotent: true, maxInFlightRequests: 5 });
    await producer.connect();
    ending.add(() => producer.disconnect());

    return {
      client: `kafkajs ${createRequire(import.meta.url)("kafkajs/package.json").version} by hand`,
      sender: () => connectedSender(ending),
      receiver: () => kafkaReceiver({ url, group, prefetch }),
      publish: (rows) => publishByHand(producer, rows),
      consume: (count) => consumeByHand(client, count),
      depth: () => lagOf(admin),
      async purge() {
        const ends = await admin.fetchTopicOffsets(name);
        const partitions = ends.map(({ partition, high }) => ({ partition, offset: high }));
        await admin.deleteTopicRecords({ topic: name, partitions });
      },
    };
  },
};

async function connectedSender(ending: Ending) {
  const sender = kafkaSender({ url });
  ending.add(() => sender.close());
  await sender.connect?.(new AbortController().signal);
  return sender;
}

/** With all replicas and idempotent, like the library. */
async function publishByHand(producer: Producer, rows: readonly ReadRow[]): Promise<void> {
  const messages = rows.map((row) => ({ key: row.key, value: row.data, headers: headersOf(row) }));
  await producer.send({ topic: name, acks: -1, messages });
}

function headersOf({ id, source, type, time, content_type, key, headers }: ReadRow): Record<string, string> {
  return {
    ce_specversion: "1.0",
    ce_id: id,
    ce_source: source,
    ce_type: type,
    ...(time && { ce_time: String(time) }),
    ...(key && { ce_partitionkey: key }),
    "content-type": content_type,
    ...(headers as Record<string, string>),
  };
}

/** Message by message; the client commits after each batch, and when it stops. */
async function consumeByHand(client: Kafka, count: number): Promise<void> {
  const consumer = client.consumer({ groupId: group, maxWaitTimeInMs: 250 });
  await consumer.connect();
  try {
    await consumer.subscribe({ topic: name, fromBeginning: true });
    let left = count;
    await new Promise<void>((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
      // A batch is committed when its last message is done.
      consumer.on(consumer.events.END_BATCH_PROCESS, () => left === 0 && resolve());
      const eachMessage = async () => {
        left--;
      };
      consumer.run({ eachMessage, partitionsConsumedConcurrently: numPartitions }).catch(reject);
    });
    await consumer.stop();
  } finally {
    await consumer.disconnect();
  }
}

/** How many messages the group has not committed. */
async function lagOf(admin: Admin): Promise<number> {
  const ends = await admin.fetchTopicOffsets(name);
  const [read] = await admin.fetchOffsets({ groupId: group, topics: [name] });
  const committed = new Map(read?.partitions.map(({ partition, offset }) => [partition, Number(offset)]));
  return ends.reduce((sum, { partition, low, high }) => {
    return sum + Number(high) - Math.max(Number(low), committed.get(partition) ?? 0);
  }, 0);
}
