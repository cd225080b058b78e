import { ConfigError, PostboxError } from "../../errors.js";
import type { Runtime } from "../../internal/runtime.js";
import { whenAborted } from "../../internal/when-aborted.js";
import type { Telemetry } from "../../telemetry/events.js";
import type { Subscription } from "../../transport.js";
import type { RoomLimits } from "../room.js";
import type { KafkaCluster, TopicPartition } from "./client.js";
import { code } from "./error-codes.js";
import { Fetcher } from "./fetcher.js";
import { type FromForeign, fromRecord } from "./kafka-message.js";
import { Membership, type MembershipOptions } from "./membership.js";
import { Offsets } from "./offsets.js";
import { Parking } from "./parking.js";
import { PartitionStream, type StreamListener } from "./partition-stream.js";
import { Topics } from "./topics.js";
import type { TopicPlan } from "./topology.js";

export interface GroupRunOptions extends Omit<MembershipOptions, "topics"> {
  readonly limits: RoomLimits;
  readonly maxMessageBytes: number;
  readonly fromForeign?: FromForeign;
  readonly create?: TopicPlan;
  readonly runtime: Runtime;
  readonly telemetry: Telemetry;
}

export interface GroupRunListener {
  /** It receives. */
  ready(): void;
  alive(): void;
  failing(error: PostboxError): void;
}

/** One run of a receiver as a member of its group, from the first join until it is stopped or lost to the group. */
export class GroupRun {
  readonly #cluster: KafkaCluster;
  readonly #options: GroupRunOptions;
  readonly #subscription: Subscription;
  readonly #listener: GroupRunListener;
  readonly #topics: Topics;
  readonly #membership: Membership;
  readonly #offsets: Offsets;
  readonly #fetcher: Fetcher;
  readonly #parking: Parking;
  readonly #streams = new Map<string, PartitionStream>();
  /** Revoked streams with deliveries that are not settled yet. */
  readonly #revoked = new Set<PartitionStream>();
  readonly #ended = new AbortController();
  /** Aborted with the reason if the consumer fails to take a delivery. */
  readonly #failed = new AbortController();
  #stopping = false;
  #changed = () => {};

  constructor(cluster: KafkaCluster, options: GroupRunOptions, subscription: Subscription, listener: GroupRunListener) {
    this.#cluster = cluster;
    this.#options = options;
    this.#subscription = subscription;
    this.#listener = listener;
    this.#topics = new Topics(cluster);
    const topics = [...new Set(subscription.events.map(({ topic }) => topic))];
    this.#membership = new Membership(
      cluster,
      this.#topics,
      { ...options, topics },
      {
        assigned: (added) => this.#assigned(added),
        revoked: (gone) => this.#gone(gone),
        lost: (all, why) => this.#lost(all, why),
        alive: () => listener.alive(),
        failing: (error) => listener.failing(error),
      },
    );
    this.#offsets = new Offsets(cluster, this.#membership, () => this.#streams.values(), options.runtime);
    this.#fetcher = new Fetcher(cluster, this.#topics, () => this.#streams.values(), {
      alive: () => listener.alive(),
      failed: (error) => listener.failing(error),
      skipped: (of, from, to) => this.#skipped(of, from, to),
      leaderless: (of) => this.#leaderless(of),
    });
    const { consumer } = subscription;
    const { create, runtime } = options;
    this.#parking = new Parking(cluster, { consumer, runtime, ...(create && { create }) });
  }

  /** Runs until the signal is aborted and every delivery is settled. Rejects when the group is lost. */
  async run(signal: AbortSignal): Promise<void> {
    try {
      await this.#checkTopics();
    } catch (error) {
      // An open connection would keep the process alive.
      this.#cluster.close();
      throw error;
    }
    let failure: { readonly cause: unknown } | undefined;
    let leaving = false;
    const member = this.#membership.run(this.#ended.signal).catch((cause: unknown) => {
      // The connections are closed while it still joins.
      if (!leaving) failure ??= { cause };
      this.#changed();
    });
    const cancel = whenAborted(signal, () => this.#stop());
    const failed = whenAborted(this.#failed.signal, () => {
      failure ??= { cause: this.#failed.signal.reason };
      this.#changed();
    });
    try {
      while (failure === undefined && !(this.#stopping && !this.#busy)) {
        await new Promise<void>((resolve) => {
          this.#changed = resolve;
        });
      }
      if (failure === undefined) {
        leaving = true;
        await this.#offsets.flush([...this.#streams.values()]);
        this.#ended.abort();
        await this.#membership.leave();
      } else
        this.#lost(
          [...this.#streams.values()].map(({ of }) => of),
          "the connection to the group was lost",
        );
    } finally {
      cancel();
      failed();
      this.#ended.abort();
      this.#fetcher.end();
      this.#offsets.end();
      this.#cluster.close();
    }
    await member;
    if (failure !== undefined) throw failure.cause;
  }

  get #busy(): boolean {
    return this.#revoked.size > 0 || [...this.#streams.values()].some(({ busy }) => busy);
  }

  #stop(): void {
    this.#stopping = true;
    for (const stream of this.#streams.values()) stream.stop();
    this.#changed();
  }

  async #checkTopics(): Promise<void> {
    const topics = this.#subscription.events.map(({ topic }) => topic);
    await this.#topics.learn(topics);
    for (const topic of topics) {
      const answer = this.#topics.of(topic)?.code ?? code.unknownTopic;
      if (answer === code.none) continue;
      if (answer === code.topicForbidden) {
        const text = `${this.#options.place} does not let this user read topic ${topic}; grant the right to read there`;
        throw new ConfigError("transport-refused", text);
      }
      const text =
        `there is no topic ${topic} for consumer ${this.#subscription.consumer}; make it with Kafka's tools, or give ` +
        'the receiver topology: "create"';
      throw new ConfigError("topology-missing", text);
    }
  }

  async #assigned(added: readonly TopicPartition[]): Promise<void> {
    const { group, limits } = this.#options;
    const stored = await this.#offsets.stored(group, added);
    const fresh = added.filter((of) => (stored.get(nameOf(of))?.offset ?? -1) < 0);
    const first = await this.#earliest(fresh);
    for (const of of added) {
      const name = nameOf(of);
      const offset = first.get(name) ?? stored.get(name)?.offset ?? 0;
      const handedOver = Math.max(offset, stored.get(name)?.handedOver ?? 0);
      const stream = new PartitionStream(
        of,
        { offset, handedOver },
        limits,
        this.#streamListener(of, () => stream),
      );
      if (this.#stopping) stream.stop();
      this.#streams.set(name, stream);
    }
    this.#listener.ready();
    this.#fetcher.pump();
  }

  /** A group that has stored nothing begins with the oldest record, so that it misses none. */
  async #earliest(of: readonly TopicPartition[]): Promise<ReadonlyMap<string, number>> {
    const offsets = new Map<string, number>();
    let missing = of;
    for (let attempt = 0; missing.length > 0 && attempt < 100; attempt++) {
      const byLeader = new Map<number, TopicPartition[]>();
      for (const each of missing) {
        const leader = this.#topics.leaderOf(each);
        byLeader.set(leader, [...(byLeader.get(leader) ?? []), each]);
      }
      for (const [leader, partitions] of byLeader) {
        if (leader === -1) continue;
        for (const each of await this.#cluster.earliest(leader, partitions)) {
          if (each.code === code.none) offsets.set(nameOf(each), each.offset);
        }
      }
      missing = of.filter((each) => !offsets.has(nameOf(each)));
      if (missing.length > 0) {
        await new Promise((resolve) => setTimeout(resolve, 100));
        await this.#topics.refresh();
      }
    }
    // Without a leader nothing can be read: it begins at 0, and is moved to the first record when that is known.
    return offsets;
  }

  #streamListener(of: TopicPartition, stream: () => PartitionStream): StreamListener {
    const { maxMessageBytes, fromForeign } = this.#options;
    const reading = { ...of, maxMessageBytes, ...(fromForeign !== undefined && { fromForeign }) };
    return {
      deliver: (delivery) => this.#subscription.deliver(delivery),
      read: (record) => fromRecord(record, reading),
      park: async (record, reason) => {
        try {
          await this.#parking.park(record, of, reason);
        } catch (error) {
          const { consumer } = this.#subscription;
          this.#options.telemetry({ name: "router.failed", consumer, error: PostboxError.from(error) });
          throw error;
        }
      },
      // For each message: the run needs to look only if it waits for the end of something.
      changed: () => {
        if (this.#revoked.size > 0 && !stream().busy) this.#revoked.delete(stream());
        if (this.#stopping) this.#changed();
      },
      hungry: () => this.#fetcher.pump(),
      dirty: (atOnce) => this.#offsets.dirty(atOnce),
      failed: (cause) => this.#failed.abort(cause),
    };
  }

  /** Others get these when this resolves. */
  async #gone(gone: readonly TopicPartition[]): Promise<void> {
    const streams = this.#take(gone);
    for (const stream of streams) {
      stream.revoke(`partition ${stream.name} was revoked; the member that has it now gets its messages`);
    }
    await this.#offsets.flush(streams);
    this.#changed();
  }

  #lost(all: readonly TopicPartition[], why: string): void {
    for (const stream of this.#take(all)) {
      stream.revoke(`partition ${stream.name} was lost: ${why}; its messages are delivered again`);
    }
    this.#changed();
  }

  #take(all: readonly TopicPartition[]): PartitionStream[] {
    return all.flatMap((of) => {
      const stream = this.#streams.get(nameOf(of));
      if (stream === undefined) return [];
      this.#streams.delete(stream.name);
      if (stream.busy) this.#revoked.add(stream);
      return stream;
    });
  }

  #leaderless({ topic, partition }: TopicPartition): void {
    const { consumer } = this.#subscription;
    const text =
      `${consumer} cannot read partition ${topic}/${partition}: it has had no leader for a while; check its brokers, ` +
      "and that the topic exists";
    this.#options.telemetry({ name: "router.failed", consumer, error: new PostboxError("transport-down", text) });
  }

  #skipped({ topic, partition }: TopicPartition, from: number, to: number): void {
    const { consumer } = this.#subscription;
    const which = `messages ${from} to ${to - 1} of ${topic}/${partition}`;
    const text = `${which} were removed before ${consumer} had read them; raise the retention, or add consumers`;
    this.#options.telemetry({ name: "router.failed", consumer, error: new PostboxError("message-too-old", text) });
  }
}

const nameOf = ({ topic, partition }: TopicPartition) => `${topic}/${partition}`;
