import { type PostboxError, TransportDownError } from "../../errors.js";
import { type Runtime, sleep } from "../../internal/runtime.js";
import type { KafkaCluster, KafkaCompression, KafkaRecord, ProducerIdentity, TopicPartition } from "./client.js";
import { code, codeText, isFatalForProducer, isUnavailable } from "./error-codes.js";
import type { Topics } from "./topics.js";

/** How one record ended. */
export type Produced =
  | { readonly how: "stored" }
  /** Its partition has no leader that can store it. */
  | { readonly how: "unavailable"; readonly why: string }
  /** The broker refuses it, with this code. */
  | { readonly how: "refused"; readonly code: number }
  /** An earlier record of its key was refused. */
  | { readonly how: "behind" }
  /** No broker can be reached, or authentication failed. It may be stored. */
  | { readonly how: "lost"; readonly error: PostboxError };

/** A record on its way to a partition. */
export interface Produce extends TopicPartition {
  readonly record: KafkaRecord;
  readonly key: string | undefined;
  readonly bytes: number;
  done(produced: Produced): void;
}

export interface ProducerOptions {
  readonly compression: KafkaCompression;
  readonly runtime: Runtime;
  /** The most bytes of a batch for this topic. */
  batchBytesOf(topic: string): number;
}

/** The records of one partition. One batch is in flight at a time, so that a failure cannot change their order. */
interface Lane extends TopicPartition {
  queue: Produce[];
  batch?: Batch;
  inFlight: boolean;
  /** So many of the next records are sent each in a batch of its own. */
  alone: number;
  failingSince?: number;
}

interface Batch {
  records: Produce[];
  /** The identity and the sequence that it was sent with. Sent again with the same ones, it is stored once. */
  identity?: ProducerIdentity;
  sequence: number;
  /** Whether a broker may have stored it without our knowing. */
  unknown: boolean;
}

const mostRecords = 5_000;
const mostSequence = 0x80000000;
const retryMs = 100;
/**
 * How long a batch is sent again before its records count as unavailable. A relay waits longer for a call by default:
 * otherwise it would take the silence of one partition for an outage of all.
 */
const patienceMs = 2_000;

/**
 * An idempotent producer. Records of a partition are stored in the order of `add`, and once, although batches are sent
 * again after a lost connection or an election. If the broker has forgotten or rejects the producer's identity, it goes
 * on with a new one: then a batch whose answer was lost may be stored twice, with the same ids.
 */
export class Producer {
  readonly #cluster: KafkaCluster;
  readonly #topics: Topics;
  readonly #options: ProducerOptions;
  readonly #lanes = new Map<string, Lane>();
  #identity: ProducerIdentity | undefined;
  #asking: Promise<ProducerIdentity> | undefined;
  /** The next sequence of each partition under the present identity. */
  #sequences = new Map<Lane, number>();
  #flushing = false;

  constructor(cluster: KafkaCluster, topics: Topics, options: ProducerOptions) {
    this.#cluster = cluster;
    this.#topics = topics;
    this.#options = options;
  }

  add(produce: Produce): void {
    const name = `${produce.topic}/${produce.partition}`;
    let lane = this.#lanes.get(name);
    if (lane === undefined) {
      lane = { topic: produce.topic, partition: produce.partition, queue: [], inFlight: false, alone: 0 };
      this.#lanes.set(name, lane);
    }
    lane.queue.push(produce);
    this.#flushSoon();
  }

  /** Forgets records that wait. One that is in flight is still stored, and not reported. */
  cancel(all: ReadonlySet<Produce>): void {
    for (const lane of this.#lanes.values()) lane.queue = lane.queue.filter((each) => !all.has(each));
  }

  /** Goes on with a new identity, since nobody waits for what is in flight any more. */
  reset(): void {
    this.#identity = undefined;
    this.#sequences = new Map();
  }

  /** After this turn, so that the records of one turn go together. */
  #flushSoon(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    queueMicrotask(() => {
      this.#flushing = false;
      this.#flush();
    });
  }

  #flush(): void {
    const byLeader = new Map<number, Lane[]>();
    for (const lane of this.#lanes.values()) {
      if (lane.inFlight || (lane.batch === undefined && lane.queue.length === 0)) continue;
      lane.batch ??= this.#nextBatch(lane);
      lane.inFlight = true;
      const leader = this.#topics.leaderOf(lane);
      const of = byLeader.get(leader);
      if (of === undefined) byLeader.set(leader, [lane]);
      else of.push(lane);
    }
    for (const [leader, lanes] of byLeader) void this.#send(leader, lanes);
  }

  #nextBatch(lane: Lane): Batch {
    if (lane.alone > 0) {
      lane.alone--;
      return { records: lane.queue.splice(0, 1), sequence: 0, unknown: false };
    }
    const limit = this.#options.batchBytesOf(lane.topic);
    let bytes = 0;
    let count = 0;
    while (count < lane.queue.length && count < mostRecords) {
      bytes += (lane.queue[count] as Produce).bytes;
      if (count > 0 && bytes > limit) break;
      count++;
    }
    return { records: lane.queue.splice(0, count), sequence: 0, unknown: false };
  }

  /** Never rejects. */
  async #send(leader: number, lanes: readonly Lane[]): Promise<void> {
    if (leader === -1) return this.#retry(lanes, "it has no leader");
    try {
      const identity = await this.#current();
      const batches = lanes.map((lane) => this.#numbered(lane, identity));
      let answers: Awaited<ReturnType<KafkaCluster["produce"]>>;
      try {
        answers = await this.#cluster.produce(leader, identity, batches, this.#options.compression);
      } catch (error) {
        const isUnknown = error instanceof TransportDownError && error.during === "send";
        for (const { batch } of lanes) if (batch && isUnknown) batch.unknown = true;
        if (!(error instanceof TransportDownError)) throw error;
        return await this.#retry(lanes, error.message, error);
      }
      const codes = new Map(answers.map((each) => [`${each.topic}/${each.partition}`, each.code]));
      const again = lanes.filter((lane) => !this.#answered(lane, codes.get(`${lane.topic}/${lane.partition}`) ?? -1));
      if (again.length > 0) {
        const found = codes.get(`${again[0]?.topic}/${again[0]?.partition}`) ?? -1;
        await this.#retry(again, codeText(found));
      }
      this.#flushSoon();
    } catch (error) {
      this.#lose(lanes, error as PostboxError);
    }
  }

  #numbered(lane: Lane, identity: ProducerIdentity) {
    const batch = lane.batch as Batch;
    if (batch.identity !== identity) {
      batch.identity = identity;
      batch.sequence = this.#sequences.get(lane) ?? 0;
    }
    const { topic, partition } = lane;
    return { topic, partition, sequence: batch.sequence, records: batch.records.map(({ record }) => record) };
  }

  /** Returns whether the answer ends this attempt: the batch is stored, refused or divided. */
  #answered(lane: Lane, answer: number): boolean {
    const batch = lane.batch as Batch;
    if (answer === code.none || answer === code.duplicateSequence) {
      if (batch.identity === this.#identity) {
        this.#sequences.set(lane, (batch.sequence + batch.records.length) % mostSequence);
      }
      for (const each of batch.records) each.done({ how: "stored" });
    } else if (isFatalForProducer(answer)) {
      if (batch.identity === this.#identity) this.reset();
      return false;
    } else if (isUnavailable(answer)) {
      // The leader may have stored it, if not on enough replicas.
      if (answer === 7 || answer === 20) batch.unknown = true;
      return false;
    } else if ((answer === code.tooLarge || answer === code.batchTooLarge) && batch.records.length > 1) {
      const half = Math.ceil(batch.records.length / 2);
      lane.queue.unshift(...batch.records.slice(half));
      lane.batch = { records: batch.records.slice(0, half), sequence: 0, unknown: false };
      lane.inFlight = false;
      return true;
    } else this.#refuse(lane, answer);
    this.#free(lane);
    return true;
  }

  /** Of several records, each is sent again alone, since the broker does not say which of them it refuses. */
  #refuse(lane: Lane, answer: number): void {
    const { records } = lane.batch as Batch;
    if (records.length > 1) {
      lane.queue.unshift(...records);
      lane.alone = records.length;
      return;
    }
    const key = records[0]?.key;
    const behind = key === undefined ? [] : lane.queue.filter((each) => each.key === key);
    lane.queue = lane.queue.filter((each) => !behind.includes(each));
    lane.alone = Math.max(0, lane.alone - behind.length);
    for (const each of records) each.done({ how: "refused", code: answer });
    for (const each of behind) each.done({ how: "behind" });
  }

  #free(lane: Lane): void {
    delete lane.batch;
    delete lane.failingSince;
    lane.inFlight = false;
  }

  /** Waits a moment, learns who leads the partitions now, and sends the same batches again. */
  async #retry(lanes: readonly Lane[], why: string, lost?: TransportDownError): Promise<void> {
    const { runtime } = this.#options;
    const now = runtime.monotonic();
    for (const lane of lanes) lane.failingSince ??= now;
    const tired = lanes.filter(({ failingSince = now }) => now - failingSince >= patienceMs);
    for (const lane of tired) this.#giveUp(lane, why);
    const others = lanes.filter((lane) => !tired.includes(lane));
    try {
      // Without any broker there is nothing to wait for: the caller has its own delays.
      await this.#topics.refresh();
      if (others.length > 0) await sleep(runtime, retryMs);
      for (const lane of others) lane.inFlight = false;
      this.#flushSoon();
    } catch (error) {
      const unknown = others.some(({ batch }) => batch?.unknown);
      this.#lose(others, unknown && lost !== undefined ? lost : (error as PostboxError));
    }
  }

  #giveUp(lane: Lane, why: string): void {
    const { batch, queue } = lane;
    if (batch?.unknown) this.reset();
    lane.queue = [];
    this.#free(lane);
    for (const each of [...(batch?.records ?? []), ...queue]) each.done({ how: "unavailable", why });
  }

  /** Nothing can be sent at all: also what waits is given back. */
  #lose(lanes: readonly Lane[], error: PostboxError): void {
    this.reset();
    for (const lane of this.#lanes.values()) {
      if (lane.inFlight && !lanes.includes(lane)) continue;
      const all = [...(lane.batch?.records ?? []), ...lane.queue];
      lane.queue = [];
      this.#free(lane);
      for (const each of all) each.done({ how: "lost", error });
    }
  }

  async #current(): Promise<ProducerIdentity> {
    if (this.#identity !== undefined) return this.#identity;
    this.#asking ??= this.#askIdentity().finally(() => {
      this.#asking = undefined;
    });
    return this.#asking;
  }

  /** A broker that has just started knows no identities for a moment. */
  async #askIdentity(): Promise<ProducerIdentity> {
    for (let attempt = 0; ; attempt++) {
      const { code: answer, producerId, epoch } = await this.#cluster.producerIdentity();
      if (answer === code.none) {
        this.#sequences = new Map();
        this.#identity = { producerId, epoch };
        return this.#identity;
      }
      if (attempt === 50) throw new TransportDownError("connect", `Kafka gives no producer id: ${codeText(answer)}`);
      await sleep(this.#options.runtime, retryMs);
    }
  }
}
