import { TransportDownError } from "../../errors.js";
import type { Runtime } from "../../internal/runtime.js";
import { sleep } from "../../internal/runtime.js";
import type { KafkaCluster, TopicPartition } from "./client.js";
import { code } from "./error-codes.js";
import type { Membership } from "./membership.js";
import type { Committed, PartitionStream } from "./partition-stream.js";

/** Acknowledgements wait so long for others, to share a commit. */
const gatherMs = 5;
const retryMs = 100;

/** What the metadata of a commit says. */
const handedOverPrefix = "handed-over=";

/** Stores how far the streams of a member are: one commit at a time, for all that have changed meanwhile. */
export class Offsets {
  readonly #cluster: KafkaCluster;
  readonly #membership: Pick<Membership, "identity" | "coordinator" | "forgetCoordinator">;
  readonly #streams: () => Iterable<PartitionStream>;
  readonly #runtime: Runtime;
  #committing: Promise<void> | undefined;
  #timer: (() => void) | undefined;
  #ended = false;

  constructor(
    cluster: KafkaCluster,
    membership: Pick<Membership, "identity" | "coordinator" | "forgetCoordinator">,
    streams: () => Iterable<PartitionStream>,
    runtime: Runtime,
  ) {
    this.#cluster = cluster;
    this.#membership = membership;
    this.#streams = streams;
    this.#runtime = runtime;
  }

  /** Something has changed. Commits soon, or at once. */
  dirty(atOnce: boolean): void {
    if (this.#ended || this.#committing !== undefined) return;
    if (atOnce) {
      this.#cancel();
      void this.#commit();
    } else {
      this.#timer ??= this.#runtime.schedule(() => {
        this.#timer = undefined;
        void this.#commit();
      }, gatherMs);
    }
  }

  /** Commits what there is. Resolves when it is stored, or cannot be. */
  async flush(streams: readonly PartitionStream[]): Promise<void> {
    await this.#committing;
    for (let attempt = 0; attempt < 5; attempt++) {
      if (streams.every(({ uncommitted }) => uncommitted === undefined)) return;
      if (await this.#commitOnce(streams)) return;
      await sleep(this.#runtime, retryMs);
    }
  }

  /** Where a group goes on with these partitions; -1 for one of which nothing is stored. */
  async stored(group: string, of: readonly TopicPartition[]): Promise<ReadonlyMap<string, Committed>> {
    if (of.length === 0) return new Map();
    for (;;) {
      const node = await this.#membership.coordinator();
      const answers = await this.#cluster.committed(node, group, of);
      if (answers.every((each) => each.code === code.none)) {
        return new Map(
          answers.map(({ topic, partition, offset, metadata }) => [
            `${topic}/${partition}`,
            { offset, handedOver: Math.max(offset, handedOverOf(metadata)) },
          ]),
        );
      }
      this.#membership.forgetCoordinator();
      await sleep(this.#runtime, retryMs);
    }
  }

  end(): void {
    this.#ended = true;
    this.#cancel();
  }

  #cancel(): void {
    this.#timer?.();
    this.#timer = undefined;
  }

  async #commit(): Promise<void> {
    if (this.#committing !== undefined) return;
    this.#committing = this.#commitAll().finally(() => {
      this.#committing = undefined;
      // What changed while the last commit was under way.
      if (!this.#ended && [...this.#streams()].some(({ uncommitted }) => uncommitted !== undefined)) this.dirty(false);
    });
    await this.#committing;
  }

  async #commitAll(): Promise<void> {
    if (!(await this.#commitOnce([...this.#streams()]))) await sleep(this.#runtime, retryMs);
  }

  /** Returns whether there is nothing to repeat. Never rejects: a commit that fails is repeated, or its streams end. */
  async #commitOnce(streams: readonly PartitionStream[]): Promise<boolean> {
    const wanted = streams.flatMap((stream) => {
      const { uncommitted } = stream;
      return uncommitted === undefined ? [] : [{ stream, uncommitted }];
    });
    if (wanted.length === 0) return true;
    const { identity } = this.#membership;
    if (identity === undefined) return false;
    const offsets = wanted.map(({ stream, uncommitted: { offset, handedOver } }) => ({
      ...stream.of,
      offset,
      metadata: handedOverPrefix + handedOver,
    }));
    try {
      const answers = await this.#cluster.commit(await this.#membership.coordinator(), identity, offsets);
      const codes = new Map(answers.map((each) => [`${each.topic}/${each.partition}`, each.code]));
      const isStored = ({ stream }: (typeof wanted)[number]) => codes.get(stream.name) === code.none;
      for (const each of wanted) if (isStored(each)) each.stream.committed(each.uncommitted);
      if (wanted.every(isStored)) return true;
      if (answers.some((each) => [14, 15, 16].includes(each.code))) this.#membership.forgetCoordinator();
      return false;
    } catch (error) {
      if (!(error instanceof TransportDownError)) return false;
      this.#membership.forgetCoordinator();
      return false;
    }
  }
}

function handedOverOf(metadata: string): number {
  const number = metadata.startsWith(handedOverPrefix) ? Number(metadata.slice(handedOverPrefix.length)) : 0;
  return Number.isSafeInteger(number) ? number : 0;
}
