import type { KafkaCluster } from "./client.js";

/** Kafka's default of `max.message.bytes`, and what surrounds the records of a batch. */
const usualBytes = 1_048_588;
const batchOverhead = 70;

/** The largest batch that each topic accepts. */
export class TopicLimits {
  readonly #cluster: Pick<KafkaCluster, "settingsOf">;
  readonly #limits = new Map<string, number>();

  constructor(cluster: Pick<KafkaCluster, "settingsOf">) {
    this.#cluster = cluster;
  }

  /** For the records of a batch. */
  of(topic: string): number {
    return (this.#limits.get(topic) ?? usualBytes) - batchOverhead;
  }

  /** Asks once per topic. Never rejects: not every user may ask, and the broker itself refuses what is too large. */
  async learn(topics: Iterable<string>): Promise<void> {
    for (const topic of topics) {
      if (this.#limits.has(topic)) continue;
      this.#limits.set(topic, usualBytes);
      try {
        const { "max.message.bytes": most = "" } = await this.#cluster.settingsOf(topic, ["max.message.bytes"]);
        if (/^\d+$/.test(most)) this.#limits.set(topic, Number(most));
      } catch {}
    }
  }
}
