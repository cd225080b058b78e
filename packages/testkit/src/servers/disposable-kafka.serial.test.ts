import { Kafka, logLevel } from "kafkajs";
import { expect, test } from "vitest";
import { disposable } from "./disposable.js";
import { canRunKafka } from "./kafka-programs.js";
import { kafkaVersion } from "./services/kafka.js";

const clientOf = (url: string) =>
  new Kafka({ brokers: [new URL(url.replace("kafka", "http")).host], logLevel: logLevel.NOTHING });

/** The values of all messages of a topic, read until `count` of them have arrived. */
async function valuesOf(kafka: Kafka, topic: string, count: number): Promise<string[]> {
  const consumer = kafka.consumer({ groupId: "readers", maxWaitTimeInMs: 100 });
  const values: string[] = [];
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({ eachMessage: async ({ message }) => void values.push(String(message.value)) });
  await expect.poll(() => values.length).toBe(count);
  await consumer.disconnect();
  return values;
}

test.skipIf(!canRunKafka())(
  "a Kafka keeps what was confirmed through a kill and a restart, and leaves nothing behind",
  async () => {
    const server = await disposable("kafka");
    try {
      expect(await kafkaVersion(server.url)).toMatch(/^4/);
      const admin = clientOf(server.url).admin();
      await admin.connect();
      await admin.createTopics({ topics: [{ topic: "survivor" }], waitForLeaders: true });
      await admin.disconnect();
      const producer = clientOf(server.url).producer({ idempotent: true });
      await producer.connect();
      await producer.send({ topic: "survivor", messages: [{ value: "7" }] });
      await producer.disconnect();
      await server.kill();
      await expect(kafkaVersion(server.url)).rejects.toThrow("ECONNREFUSED");
      await server.restart();
      expect(await valuesOf(clientOf(server.url), "survivor", 1)).toEqual(["7"]);
    } finally {
      await server.stop();
    }
    expect(() => server.pid).toThrow("does not run");
  },
  120_000,
);
