import { ConfigError, PostboxError } from "../../errors.js";
import type { Runtime } from "../../internal/runtime.js";
import type { Message } from "../../message/message.js";
import type { Outcome, Sender } from "../../transport.js";
import type { ConnectionWatch } from "../connection-watch.js";
import type { KafkaCluster, KafkaRecord } from "./client.js";
import { openCluster } from "./connection.js";
import { code } from "./error-codes.js";
import { toRecord } from "./kafka-message.js";
import type { KafkaSenderOptions } from "./kafka-sender.js";
import { KeyChain } from "./key-chain.js";
import { partitionOf } from "./murmur2.js";
import { behind, forbidden, invalidTopic, noTopic, producedOutcome, tooLarge, unencodable } from "./outcomes.js";
import { type Produce, Producer } from "./producer.js";
import { SentBatch } from "./sent-batch.js";
import { TopicLimits } from "./topic-limits.js";
import { Topics } from "./topics.js";

interface SenderLinkParts {
  route(message: Pick<Message, "topic" | "type">): string;
  readonly runtime: Runtime;
  readonly watch: ConnectionWatch;
  /** The outcome of a message whose topic is missing. */
  unrouted(message: Message, error: PostboxError): Outcome;
}

/** What belongs together until `close`. */
interface Opened {
  readonly cluster: KafkaCluster;
  readonly topics: Topics;
  readonly limits: TopicLimits;
  readonly producer: Producer;
}

/** A message with its record and its partition, or with an outcome that is known before it is sent. */
type Prepared = Omit<Produce, "done"> | Outcome;

/** An upper bound of what surrounds a record and each of its headers. */
const recordOverhead = 40;
const topicName = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$/;

/** The connections and the producer of a sender: made with the first message, and again after `close`. */
export class SenderLink {
  readonly #options: KafkaSenderOptions;
  readonly #parts: SenderLinkParts;
  #opening: Promise<Opened> | undefined;
  #opened: Opened | undefined;
  #checking = false;
  #learning: Promise<void> = Promise.resolve();
  #turn = 0;

  constructor(options: KafkaSenderOptions, parts: SenderLinkParts) {
    this.#options = options;
    this.#parts = parts;
  }

  /** Resolves if a broker answers. */
  async connect(): Promise<KafkaCluster> {
    const { cluster, topics } = await this.#ready();
    await this.#reported<unknown>(() => (topics.size > 0 ? topics.refresh() : cluster.metadata([anyTopic])));
    return cluster;
  }

  /** The partition of a message with a key. Known once its topic is. */
  scopeOf(message: Message): string | undefined {
    if (message.key === undefined || this.#opened === undefined) return undefined;
    try {
      const topic = this.#parts.route(message);
      const partitions = this.#opened.topics.of(topic)?.leaders.length ?? 0;
      return partitions === 0 ? undefined : `${topic}/${partitionOf(Buffer.from(message.key), partitions)}`;
    } catch {
      // Sending it tells why.
      return undefined;
    }
  }

  send(messages: readonly Message[], settled: Parameters<Sender["send"]>[1]): SentBatch {
    const batch = new SentBatch(messages.length, settled);
    this.#sendAll(messages, batch).catch((error) => batch.fail(error));
    return batch;
  }

  /** The caller of this batch has its answer. What waits for it is not sent. */
  end(batch: SentBatch): void {
    if (batch.unreported > 0) this.#opened?.producer.cancel(batch.produced);
    batch.end();
  }

  /** Nobody waits for answers that are in flight any more. The next call begins with new connections. */
  giveUp(): void {
    this.#opened?.producer.reset();
    this.#opened?.cluster.close();
  }

  async close(): Promise<void> {
    const opening = this.#opening;
    this.#opening = this.#opened = undefined;
    const opened = await opening?.catch(() => undefined);
    opened?.cluster.close();
    this.#parts.watch.closed();
  }

  async #sendAll(messages: readonly Message[], batch: SentBatch): Promise<void> {
    const opened = await this.#ready();
    const routes = messages.map((message) => this.#routed(message));
    const topics = new Set(routes.flatMap((topic) => (typeof topic === "string" ? topic : [])));
    const learning = this.#learn(opened, topics);
    this.#learning = learning.catch(() => {});
    await learning;
    if (batch.ended) return;
    const chains = new Map<string, KeyChain>();
    for (const [index, message] of messages.entries()) {
      const prepared = this.#prepared(message, routes[index] as string | Outcome, opened);
      const start = (finished: (outcome: Outcome) => void) => {
        const finish = (outcome: Outcome) => {
          batch.settle(index, outcome);
          finished(outcome);
        };
        if ("record" in prepared) this.#produce(opened, prepared, message, batch, finish);
        else finish(prepared);
      };
      const { key } = message;
      if (key === undefined) {
        start(() => {});
        continue;
      }
      const chain = chains.get(key) ?? new KeyChain();
      chains.set(key, chain);
      chain.add({
        lane: "record" in prepared ? `${prepared.topic}/${prepared.partition}` : undefined,
        start,
        hold: () => batch.settle(index, behind(message.id)),
      });
    }
  }

  /** One call after the other, so that a call whose topics are known does not overtake one that still asks. */
  async #learn({ topics, limits }: Opened, wanted: ReadonlySet<string>): Promise<void> {
    await this.#learning;
    // After a loss, what is known proves nothing.
    const isDown = this.#parts.watch.health().status === "down";
    await this.#reported(() => topics.learn(wanted, isDown));
    await limits.learn(wanted);
  }

  #produce(
    { producer }: Opened,
    prepared: Omit<Produce, "done">,
    message: Message,
    batch: SentBatch,
    finish: (outcome: Outcome) => void,
  ): void {
    if (batch.ended) return;
    const produce: Produce = {
      ...prepared,
      done: (produced) => {
        if (produced.how === "lost") {
          if (this.#parts.watch.health().status === "connected") this.#parts.watch.lost(produced.error);
          batch.fail(produced.error);
        } else finish(producedOutcome(produced, message, prepared.topic));
      },
    };
    batch.produced.add(produce);
    producer.add(produce);
  }

  #routed(message: Message): string | Outcome {
    try {
      const topic = this.#parts.route(message);
      return topicName.test(topic) ? topic : invalidTopic(message.id, topic);
    } catch (error) {
      return unencodable(message.id, error);
    }
  }

  #prepared(message: Message, topic: string | Outcome, { topics, limits }: Opened): Prepared {
    if (typeof topic !== "string") return topic;
    const { id, key } = message;
    const { code: answer = code.unknownTopic, leaders = [] } = topics.of(topic) ?? {};
    if (answer === code.topicForbidden) return forbidden(id, topic);
    if (answer === code.unknownTopic || leaders.length === 0) return this.#parts.unrouted(message, noTopic(id, topic));
    let record: KafkaRecord;
    try {
      record = toRecord(message, topic, this.#options.mode ?? "binary");
    } catch (error) {
      return unencodable(id, error);
    }
    const bytes = sizeOf(record);
    const most = Math.min(limits.of(topic), this.#options.maxMessageBytes ?? Number.POSITIVE_INFINITY);
    if (bytes > most) return tooLarge(id, bytes, most, topic);
    const partition = record.key ? partitionOf(record.key, leaders.length) : this.#anyPartition(leaders);
    return { topic, partition, record, key, bytes };
  }

  /** Takes turns among the partitions that have a leader; if none has, among all. */
  #anyPartition(leaders: readonly number[]): number {
    const turn = this.#turn++;
    for (let at = 0; at < leaders.length; at++) {
      const partition = (turn + at) % leaders.length;
      if (leaders[partition] !== -1) return partition;
    }
    return turn % leaders.length;
  }

  #ready(): Promise<Opened> {
    this.#opening ??= this.#open();
    return this.#opening;
  }

  async #open(): Promise<Opened> {
    const { compression = "none" } = this.#options;
    const cluster = await openCluster(this.#options, () => this.#check());
    const topics = new Topics(cluster);
    const limits = new TopicLimits(cluster);
    const producer = new Producer(cluster, topics, {
      compression,
      runtime: this.#parts.runtime,
      batchBytesOf: (topic) => limits.of(topic),
    });
    this.#opened = { cluster, topics, limits, producer };
    return this.#opened;
  }

  /** A broker closes connections that are idle for long. Only if none answers now, the transport is down. */
  #check(): void {
    if (this.#checking) return;
    this.#checking = true;
    this.connect()
      .catch(() => {})
      .finally(() => {
        this.#checking = false;
      });
  }

  /** Keeps the health up to date. */
  async #reported<R>(ask: () => Promise<R>): Promise<R> {
    const { watch } = this.#parts;
    try {
      const answer = await ask();
      if (watch.health().status !== "connected") watch.connected();
      return answer;
    } catch (error) {
      // After `close`, a check that was under way fails.
      if (this.#opened !== undefined) watch.lost(PostboxError.from(error, "transport-down"));
      if (error instanceof ConfigError) this.#opening = this.#opened = undefined;
      throw error;
    }
  }
}

/** A topic that need not exist: an answer about it shows that a broker answers. */
const anyTopic = "postbox";

/** An upper bound of the bytes that a record takes in a batch. */
function sizeOf({ key, value, headers }: KafkaRecord): number {
  let size = recordOverhead + (key?.length ?? 0) + (value?.length ?? 0);
  for (const name of Object.keys(headers)) {
    size += name.length * 3 + 10 + (headers[name] as Uint8Array).length;
  }
  return size;
}
