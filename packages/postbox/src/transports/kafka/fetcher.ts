import { PostboxError } from "../../errors.js";
import type { KafkaCluster, TopicPartition } from "./client.js";
import { code, codeText, isUnavailable } from "./error-codes.js";
import type { PartitionStream } from "./partition-stream.js";
import type { Topics } from "./topics.js";

export interface FetcherListener {
  /** A broker answered. */
  alive(): void;
  /** A broker cannot be reached, or answers with an error. It is tried again. */
  failed(error: PostboxError): void;
  /** The records from `from` to `to` no longer exist. */
  skipped(of: TopicPartition, from: number, to: number): void;
  /** A partition has had no leader for long, or does not exist any more. Told once until it has one again. */
  leaderless(of: TopicPartition): void;
}

/** How long a broker waits for records. A partition that gets room meanwhile waits as long. */
const maxWaitMs = 250;
const maxBytes = 1024 * 1024;
const retryMs = 100;
/** An election takes less. */
const leaderlessMs = 15_000;

/** Reads records for the streams of a member: with one request at a time to each broker. */
export class Fetcher {
  readonly #cluster: KafkaCluster;
  readonly #topics: Topics;
  readonly #streams: () => Iterable<PartitionStream>;
  readonly #listener: FetcherListener;
  readonly #busy = new Set<number>();
  readonly #timers = new Set<NodeJS.Timeout>();
  /** Since when each partition has had no leader; infinite once that was told. */
  readonly #leaderless = new Map<string, number>();
  #refreshing = false;
  #ended = false;
  #pumping = false;

  constructor(
    cluster: KafkaCluster,
    topics: Topics,
    streams: () => Iterable<PartitionStream>,
    listener: FetcherListener,
  ) {
    this.#cluster = cluster;
    this.#topics = topics;
    this.#streams = streams;
    this.#listener = listener;
  }

  /** Reads for all streams that have room, unless a request for them is under way. Cheap. */
  pump(): void {
    if (this.#ended || this.#pumping) return;
    this.#pumping = true;
    queueMicrotask(() => {
      this.#pumping = false;
      if (!this.#ended) this.#ask();
    });
  }

  end(): void {
    this.#ended = true;
    for (const timer of this.#timers) clearTimeout(timer);
  }

  #ask(): void {
    const byLeader = new Map<number, PartitionStream[]>();
    for (const stream of this.#streams()) {
      if (!stream.hungry) continue;
      const leader = this.#topics.leaderOf(stream.of);
      if (leader === -1) this.#missLeader(stream);
      else this.#leaderless.delete(stream.name);
      if (leader === -1) this.#refreshSoon();
      else if (!this.#busy.has(leader)) byLeader.set(leader, [...(byLeader.get(leader) ?? []), stream]);
    }
    for (const [leader, streams] of byLeader) {
      this.#busy.add(leader);
      void this.#read(leader, streams).then((pauseMs) => {
        if (pauseMs === 0) {
          this.#busy.delete(leader);
          this.pump();
        } else {
          this.#after(pauseMs, () => {
            this.#busy.delete(leader);
            this.pump();
          });
        }
      });
    }
  }

  /** Returns how long to wait before the next request. Never rejects. */
  async #read(leader: number, streams: readonly PartitionStream[]): Promise<number> {
    const from = streams.map((stream) => ({ ...stream.of, offset: stream.next }));
    const byName = new Map(streams.map((stream) => [stream.name, stream]));
    let pauseMs = 0;
    try {
      const startedAt = performance.now();
      const read = await this.#cluster.fetch(leader, from, { maxWaitMs, maxBytes });
      if (this.#ended) return 0;
      this.#listener.alive();
      let records = 0;
      for (const each of read) {
        const stream = byName.get(`${each.topic}/${each.partition}`);
        if (stream === undefined) continue;
        records += each.records.length;
        if (each.code === code.none) stream.append(each.records, each.next);
        else if (each.code === code.offsetOutOfRange) await this.#skip(leader, stream);
        else {
          pauseMs = retryMs;
          const text = `partition ${stream.name} cannot be read: ${codeText(each.code)}; it is tried again`;
          if (!isUnavailable(each.code)) this.#listener.failed(new PostboxError("transport-down", text));
          this.#refreshSoon();
        }
      }
      // A broker answers at once if it has only what is not visible, which would be asked for without end.
      if (records === 0 && performance.now() - startedAt < maxWaitMs / 2) pauseMs = Math.max(pauseMs, 20);
    } catch (error) {
      if (this.#ended) return 0;
      this.#listener.failed(PostboxError.from(error, "transport-down"));
      this.#refreshSoon();
      pauseMs = retryMs;
    }
    return pauseMs;
  }

  /** Retention has removed what comes next. */
  async #skip(leader: number, stream: PartitionStream): Promise<void> {
    const [first] = await this.#cluster.earliest(leader, [stream.of]);
    if (first === undefined || first.code !== code.none || first.offset <= stream.next) return;
    this.#listener.skipped(stream.of, stream.next, first.offset);
    stream.skipTo(first.offset);
  }

  #missLeader({ name, of }: PartitionStream): void {
    const now = performance.now();
    const since = this.#leaderless.get(name) ?? now;
    const isLong = now - since >= leaderlessMs;
    this.#leaderless.set(name, isLong ? Number.POSITIVE_INFINITY : since);
    if (isLong) this.#listener.leaderless(of);
  }

  #refreshSoon(): void {
    if (this.#refreshing) return;
    this.#refreshing = true;
    this.#after(retryMs, () => {
      this.#topics
        .refresh()
        .catch(() => {})
        .finally(() => {
          this.#refreshing = false;
          this.pump();
        });
    });
  }

  #after(ms: number, task: () => void): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      if (!this.#ended) task();
    }, ms);
    this.#timers.add(timer);
  }
}
