import { Kafka, logLevel } from "kafkajs";
import { type Diary, now } from "./diary.js";
import { digestOf, halves, topicOf } from "./posting.js";
import type { RunQueues } from "./queues.js";

const partitions = 6;

/** The group of both processes of a consumer. */
export const groupOf = (run: string, consumer: string): string => `${run}.${consumer}`;

/**
 * Makes the topics of a run. A reader of its own gets everything, in the order in which the broker takes it: it knows
 * what was accepted, whatever the relays were told.
 */
export async function kafkaTopics(
  url: string,
  run: string,
  consumers: readonly string[],
  diary: Diary,
): Promise<RunQueues> {
  const kafka = new Kafka({ brokers: [new URL(url.replace("kafka", "http")).host], logLevel: logLevel.NOTHING });
  const admin = kafka.admin();
  await admin.connect();
  const topics = halves.map((half) => topicOf(run, half));
  await admin.createTopics({ topics: topics.map((topic) => ({ topic, numPartitions: partitions })) });
  const tap = kafka.consumer({ groupId: groupOf(run, "tap"), maxWaitTimeInMs: 50 });
  await tap.connect();
  await tap.subscribe({ topics, fromBeginning: true });
  let accepted = 0;
  await tap.run({
    autoCommit: false,
    partitionsConsumedConcurrently: partitions,
    async eachMessage({ message: { key, value, headers = {} } }) {
      accepted++;
      const at = now();
      const text = (name: string) => (headers[name] === undefined ? undefined : String(headers[name]));
      const digest = digestOf(String(text("ce_type")), text("note"), value as Buffer);
      const message = { id: String(text("ce_id")), key: String(key), digest };
      diary.write({ what: "accepted", box: "outbox", message }, at);
    },
  });

  return {
    accepted: () => accepted,
    async depth() {
      let lag = 0;
      for (const consumer of consumers) {
        const groups = await admin.fetchOffsets({ groupId: groupOf(run, consumer), topics });
        for (const { topic, partitions: committed } of groups) {
          const ends = new Map((await admin.fetchTopicOffsets(topic)).map(({ partition, high }) => [partition, high]));
          for (const { partition, offset } of committed)
            lag += Number(ends.get(partition)) - Math.max(0, Number(offset));
        }
      }
      return lag;
    },
    async remove() {
      await tap.disconnect();
      await admin.deleteTopics({ topics });
      await admin.disconnect();
    },
  };
}
