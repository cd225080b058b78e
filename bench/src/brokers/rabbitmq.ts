import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { type ConfirmChannel, type ConsumeMessage, connect, type Options } from "amqplib";
import { rabbitmqReceiver, rabbitmqSender } from "postbox/rabbitmq";
import type { Ending } from "../ending.js";
import type { ReadRow } from "../outbox/by-hand.js";
import { type BrokerKind, prefetch } from "./broker.js";

const url = process.env.POSTBOX_TEST_RABBITMQ_URL ?? "amqp://guest:guest@127.0.0.1:5672";
const name = `postbox-bench-${process.pid}`;
const route = { exchange: name, routingKey: "Placed" };

/** A quorum queue bound to a topic exchange. */
export const rabbitmq: BrokerKind = {
  name: "rabbitmq",
  keepsOrder: false,

  async open(ending) {
    const connection = await connect(url);
    connection.on("error", () => {});
    ending.add(() => connection.close());
    const admin = await connection.createChannel();
    ending.add(async () => {
      await admin.deleteQueue(name);
      await admin.deleteExchange(name);
    });
    await admin.assertExchange(name, "topic", { durable: true });
    await admin.assertQueue(name, { durable: true, arguments: { "x-queue-type": "quorum" } });
    await admin.bindQueue(name, route.exchange, route.routingKey);
    const publishing = await connection.createConfirmChannel();
    let published = 0;

    return {
      client: `amqplib ${driverVersion()} by hand, RabbitMQ ${connection.connection.serverProperties.version}`,
      sender: () => connectedSender(ending),
      receiver: () => rabbitmqReceiver({ url, queue: name, prefetch, topology: "none", bindings: false }),
      publish: (rows) => publishByHand(publishing, rows, () => ++published),
      consume: consumeByHand,
      depth: async () => (await admin.checkQueue(name)).messageCount,
      async purge() {
        await admin.purgeQueue(name);
      },
    };
  },
};

async function connectedSender(ending: Ending) {
  const sender = rabbitmqSender({ url, route: () => route });
  ending.add(() => sender.close());
  await sender.connect?.(new AbortController().signal);
  return sender;
}

/** Publishes with `mandatory`, as the library does: an unroutable message is an error here. */
function publishByHand(channel: ConfirmChannel, rows: readonly ReadRow[], number: () => number): Promise<void> {
  return new Promise((resolve, reject) => {
    let unconfirmed = rows.length;
    const confirmed = (error: unknown) => {
      if (error !== null) reject(error);
      else if (--unconfirmed === 0) resolve();
    };
    channel.removeAllListeners("return");
    channel.on("return", () => reject(new Error("a message was returned")));
    for (const row of rows) {
      channel.publish(route.exchange, route.routingKey, row.data, propertiesOf(row, number()), confirmed);
    }
  });
}

function propertiesOf(row: ReadRow, number: number): Options.Publish {
  const { id, source, type, time, content_type, topic, key, headers } = row;
  return {
    messageId: id,
    type,
    persistent: true,
    mandatory: true,
    contentType: content_type,
    headers: {
      "cloudEvents:specversion": "1.0",
      "cloudEvents:id": id,
      "cloudEvents:source": source,
      "cloudEvents:type": type,
      "cloudEvents:time": time,
      "cloudEvents:partitionkey": key,
      ...headers,
      "postbox-topic": topic,
      "postbox-publish": number,
    },
  };
}

async function consumeByHand(count: number): Promise<void> {
  const connection = await connect(url);
  try {
    const channel = await connection.createChannel();
    await channel.prefetch(prefetch);
    const consumerTag = `${name}-bare`;
    await new Promise<void>((resolve, reject) => {
      let left = count;
      const take = (raw: ConsumeMessage | null) => {
        if (raw === null) return reject(new Error("the queue is gone"));
        channel.ack(raw);
        if (--left === 0) resolve();
      };
      channel.consume(name, take, { consumerTag }).catch(reject);
      connection.on("error", reject);
    });
    // RabbitMQ does not answer acks, but it answers what follows them. Without the cancel, a quorum queue redelivers
    // some of the acked messages.
    await channel.cancel(consumerTag);
    await channel.close();
  } finally {
    await connection.close();
  }
}

function driverVersion(): string {
  // amqplib does not export its package.json, which lies beside its entry point.
  const folder = dirname(createRequire(import.meta.url).resolve("amqplib"));
  return JSON.parse(readFileSync(join(folder, "package.json"), "utf8")).version;
}
