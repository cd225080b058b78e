import { PostboxError, TransportDownError } from "../../errors.js";
import type { Runtime } from "../../internal/runtime.js";
import { storedError } from "../../internal/stored-error.js";
import type { KafkaCluster, KafkaRecord, ReceivedRecord, TopicPartition } from "./client.js";
import { code, codeText } from "./error-codes.js";
import { partitionOf } from "./murmur2.js";
import { type Produced, Producer } from "./producer.js";
import { Topics } from "./topics.js";
import { createTopics, type TopicPlan } from "./topology.js";

/** Where a parked record came from, and why it was parked: headers beside its own. */
const reasonHeader = "postbox-reason";
const consumerHeader = "postbox-consumer";
const originHeader = "postbox-origin";

export const parkedTopic = (topic: string) => `${topic}.parked`;

export interface ParkingOptions {
  readonly consumer: string;
  /** How to make a topic for parked records that is missing. Absent: it must exist. */
  readonly create?: TopicPlan;
  readonly runtime: Runtime;
}

/** Stores records in the parking topics, with their own bytes, key and headers. */
export class Parking {
  readonly #cluster: KafkaCluster;
  readonly #options: ParkingOptions;
  readonly #topics: Topics;
  readonly #producer: Producer;

  constructor(cluster: KafkaCluster, options: ParkingOptions) {
    this.#cluster = cluster;
    this.#options = options;
    this.#topics = new Topics(cluster);
    this.#producer = new Producer(cluster, this.#topics, {
      compression: "none",
      runtime: options.runtime,
      // Records that were accepted once fit alone.
      batchBytesOf: () => 1,
    });
  }

  /** Resolves when the record is stored there. */
  async park(record: ReceivedRecord, of: TopicPartition, reason: Error): Promise<void> {
    const topic = parkedTopic(of.topic);
    const partitions = await this.#partitionsOf(topic);
    const partition = record.key ? partitionOf(record.key, partitions) : of.partition % partitions;
    const copy: KafkaRecord = {
      key: record.key,
      value: record.value,
      headers: {
        ...record.headers,
        [reasonHeader]: Buffer.from(storedError(reason.message)),
        [consumerHeader]: Buffer.from(this.#options.consumer),
        [originHeader]: Buffer.from(`${of.topic}/${of.partition}/${record.offset}`),
      },
    };
    const produced = await new Promise<Produced>((done) => {
      this.#producer.add({ topic, partition, record: copy, key: undefined, bytes: 1, done });
    });
    if (produced.how === "stored") return;
    if (produced.how === "lost") throw produced.error;
    const why = produced.how === "refused" ? codeText(produced.code) : "its partition is unavailable";
    throw new PostboxError("publish-failed", `a record of ${of.topic} cannot be parked in ${topic}: ${why}`);
  }

  async #partitionsOf(topic: string): Promise<number> {
    const { create } = this.#options;
    await this.#topics.learn([topic]);
    const known = this.#topics.of(topic);
    if (known?.code === code.none && known.leaders.length > 0) return known.leaders.length;
    if (create !== undefined) {
      await createTopics(this.#cluster, [topic], create);
      await this.#topics.refresh([topic]);
      const made = this.#topics.of(topic);
      if (made?.code === code.none && made.leaders.length > 0) return made.leaders.length;
      throw new TransportDownError("send", `topic ${topic} was made and is not ready yet`);
    }
    const text =
      `there is no topic ${topic} for messages that cannot be handled; make it with Kafka's tools, or give the ` +
      'receiver topology: "create"';
    throw new PostboxError("topology-missing", text);
  }
}
