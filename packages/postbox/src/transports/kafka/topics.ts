import type { KafkaCluster, TopicPartition } from "./client.js";

/** A topic, as the brokers described it last. */
export interface KnownTopic {
  /** 0, or why it cannot be used. */
  readonly code: number;
  /** The leader of each partition; -1 for none. */
  readonly leaders: readonly number[];
}

const maxAgeMs = 60_000;

/** What the brokers said of the topics that one sender or receiver uses. */
export class Topics {
  readonly #cluster: Pick<KafkaCluster, "metadata">;
  readonly #known = new Map<string, KnownTopic>();
  #asking: Promise<void> | undefined;
  #askedAt = 0;

  constructor(cluster: Pick<KafkaCluster, "metadata">) {
    this.#cluster = cluster;
  }

  /** How many topics were asked for. */
  get size(): number {
    return this.#known.size;
  }

  /** As it was described last. Undefined: it was not asked for. */
  of(topic: string): KnownTopic | undefined {
    return this.#known.get(topic);
  }

  leaderOf({ topic, partition }: TopicPartition): number {
    return this.#known.get(topic)?.leaders[partition] ?? -1;
  }

  /**
   * Learns about topics that are not known or could not be used, and about all of them if that was long ago, or if they
   * are in doubt.
   */
  async learn(topics: Iterable<string>, inDoubt = false): Promise<void> {
    const missing = [...topics].filter((topic) => this.#known.get(topic)?.code !== 0);
    const isOld = performance.now() - this.#askedAt > maxAgeMs;
    if (missing.length > 0 || isOld || inDoubt) await this.refresh(missing);
  }

  /** Asks for all known topics and these. Concurrent calls wait for one another. */
  async refresh(more: readonly string[] = []): Promise<void> {
    while (this.#asking !== undefined) await this.#asking.catch(() => {});
    this.#asking = this.#ask([...new Set([...this.#known.keys(), ...more])]).finally(() => {
      this.#asking = undefined;
    });
    await this.#asking;
  }

  async #ask(names: readonly string[]): Promise<void> {
    // Without a name, a broker describes all of its topics.
    if (names.length === 0) return;
    const { topics } = await this.#cluster.metadata(names);
    this.#askedAt = performance.now();
    for (const { topic, code, partitions } of topics) {
      const leaders: number[] = [];
      for (const { partition, leader } of partitions) leaders[partition] = leader;
      this.#known.set(topic, { code, leaders });
    }
  }
}
