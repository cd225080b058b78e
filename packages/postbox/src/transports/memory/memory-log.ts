import { ConfigError, PostboxError } from "../../errors.js";
import type { Message } from "../../message/message.js";
import { checkOptions, count, text } from "../../options.js";
import type { Outcome, Sender } from "../../transport.js";
import { LogGroup } from "./log-group.js";
import { LogMember } from "./log-member.js";
import { LogPartition, partitionOf } from "./log-partition.js";
import type { MemoryReceiver } from "./memory-broker.js";
import { orderedSender } from "./ordered-sender.js";

/** Options of `memoryLog`. */
export interface MemoryLogOptions {
  /** How many partitions a topic gets that `topic` did not make. Defaults to 3. */
  readonly partitions?: number;
}

/** Options of a receiver of `memoryLog`. */
export interface MemoryLogReceiverOptions {
  /** Receivers of one group share the partitions; every group gets every message. Defaults to the consumer's name. */
  readonly group?: string;
  /** The most unsettled deliveries of a partition at a time. Defaults to 100. */
  readonly prefetch?: number;
  /**
   * The most bytes of unsettled deliveries of a partition at a time; a larger message is delivered alone. Defaults to
   * 16 MiB.
   */
  readonly prefetchBytes?: number;
}

/** A partitioned log in memory. Everything in it is lost with the process. */
export interface MemoryLog {
  sender(): Sender;
  receiver(options?: MemoryLogReceiverOptions): MemoryReceiver;
  /**
   * Makes a topic with this many partitions. A topic that is used before gets the default number. May be repeated with
   * the same number.
   */
  topic(name: string, partitions: number): void;
  /**
   * Sets whether senders can reach a partition of a topic, given its number. An unavailable one acts like a partition
   * without a leader: messages to it are `unavailable`, and all others are sent.
   */
  setAvailable(topic: string, partition: number, available: boolean): void;
  /** How many messages of a topic a group has not committed. */
  lag(group: string, topic: string): number;
}

/**
 * Makes a broker like Kafka: topics are partitioned logs, and a key always goes to the same partition. Receivers of a
 * group share the partitions of a topic. When one joins or leaves, partitions are revoked (`Delivery.signal`) and
 * assigned anew. A group commits the offset below which everything is acknowledged, and continues there; what was
 * delivered before is `redelivered`. It delivers whole topics, and cannot retry or park a message, so a router on it
 * needs an inbox.
 *
 * @example
 * ```ts
 * const log = memoryLog();
 * log.topic("orders", 4);
 * const sender = log.sender();
 * const receiver = log.receiver({ group: "billing" });
 * ```
 */
export function memoryLog(options: MemoryLogOptions = {}): MemoryLog {
  checkOptions("memoryLog", options, { partitions: count });
  const topics = new Map<string, readonly LogPartition[]>();
  const groups = new Map<string, LogGroup>();
  let keyless = 0;

  const partitionsOf = (topic: string, many = options.partitions ?? 3): readonly LogPartition[] => {
    const made = topics.get(topic) ?? Array.from({ length: many }, (_, number) => new LogPartition(topic, number));
    topics.set(topic, made);
    return made;
  };
  const keyedPartition = ({ topic, key }: Message): LogPartition | undefined => {
    const partitions = partitionsOf(topic);
    return key === undefined ? undefined : partitions[partitionOf(key, partitions.length)];
  };
  /** Takes turns among the partitions that can be reached; if none can, any. */
  const nextAvailable = (topic: string): LogPartition => {
    const partitions = partitionsOf(topic);
    const from = keyless++ % partitions.length;
    const inTurn = [...partitions.slice(from), ...partitions.slice(0, from)];
    return (inTurn.find(({ isAvailable }) => isAvailable) ?? inTurn[0]) as LogPartition;
  };
  const groupOf = (name: string): LogGroup => {
    const group = groups.get(name) ?? new LogGroup(partitionsOf);
    groups.set(name, group);
    return group;
  };

  return {
    topic(name, partitions) {
      const { length } = partitionsOf(name, partitions);
      if (length === partitions) return;
      throw new ConfigError(
        "option-invalid",
        `memoryLog.topic: ${name} has ${length} partitions already; make it with ${partitions} before it is used`,
        { path: "partitions" },
      );
    },
    setAvailable(name, number, available) {
      const partition = partitionsOf(name)[number];
      if (partition !== undefined) partition.isAvailable = available;
      else {
        const text =
          `memoryLog.setAvailable: ${name} has no partition ${number}; it has ${partitionsOf(name).length}, ` +
          "counted from 0";
        throw new ConfigError("option-invalid", text, { path: "partition" });
      }
    },
    lag(group, topic) {
      const of = groupOf(group);
      return partitionsOf(topic).reduce(
        (sum, partition) => sum + partition.end - of.progressOf(partition).committed,
        0,
      );
    },
    sender: () => ({
      ...orderedSender("memory-log", (message) => {
        const partition = keyedPartition(message) ?? nextAvailable(message.topic);
        if (!partition.isAvailable) return unavailable(message, partition.name);
        partition.append(message);
        return { status: "sent" };
      }),
      // A message without a key goes to any partition that can be reached.
      scopeOf: (message) => keyedPartition(message)?.name,
    }),
    receiver(receiverOptions = {}) {
      checkOptions("memoryLog.receiver", receiverOptions, { group: text, prefetch: count, prefetchBytes: count });
      const { group, prefetch = 100, prefetchBytes = 16 * 1024 * 1024 } = receiverOptions;
      const members = new Set<LogMember>();
      return {
        name: "memory-log",
        settles: "in-order",
        selects: "topic",
        async prepare({ events }) {
          for (const { topic } of events) partitionsOf(topic);
        },
        async receive(subscription, signal) {
          const limits = { prefetch, prefetchBytes };
          const member = new LogMember(groupOf(group ?? subscription.consumer), limits, subscription);
          members.add(member);
          try {
            await member.run(signal);
          } finally {
            members.delete(member);
          }
        },
        crash() {
          for (const member of members) member.crash();
        },
      };
    },
  };
}

function unavailable({ id }: Message, partition: string): Outcome {
  const text = `message ${id} was not sent: partition ${partition} is unavailable; the relay tries it again`;
  return { status: "unavailable", error: new PostboxError("transport-down", text) };
}
