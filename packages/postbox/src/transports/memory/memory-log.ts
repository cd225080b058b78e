import { ConfigError } from "../../errors.js";
import { checkOptions, count, text } from "../../options.js";
import type { Sender } from "../../transport.js";
import { LogGroup } from "./log-group.js";
import { LogMember } from "./log-member.js";
import { LogPartition, partitionOf } from "./log-partition.js";
import type { MemoryReceiver } from "./memory-broker.js";
import { orderedSender } from "./ordered-sender.js";

export interface MemoryLogOptions {
  /** How many partitions a topic gets that `topic` did not make. Defaults to 3. */
  readonly partitions?: number;
}

export interface MemoryLogReceiverOptions {
  /** Receivers of one group share the partitions; every group gets every message. Defaults to the consumer's name. */
  readonly group?: string;
  /** The most deliveries of a partition that are unsettled at a time. Defaults to 100. */
  readonly prefetch?: number;
  /** The most bytes of a partition that are unsettled at a time; one larger message is still delivered alone. Defaults to 16 MiB. */
  readonly prefetchBytes?: number;
}

/** A partitioned log in memory. Everything in it is gone with the process. */
export interface MemoryLog {
  sender(): Sender;
  receiver(options?: MemoryLogReceiverOptions): MemoryReceiver;
  /** Makes a topic with so many partitions. A topic that is used before has the default number. May be repeated with the same number. */
  topic(name: string, partitions: number): void;
  /** How many messages of a topic a group has not committed. */
  lag(group: string, topic: string): number;
}

/**
 * Makes a broker as Kafka is: topics are logs with partitions, and a key always goes to the same one. Receivers of a group share the
 * partitions of a topic; when one joins or leaves, partitions are revoked (`Delivery.signal`) and assigned anew. A group commits the
 * offset below which everything is acknowledged, and continues there; what was handed over before is `redelivered`. It delivers whole
 * topics and cannot retry or park a message, so a router on it needs an inbox.
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
    lag(group, topic) {
      const of = groupOf(group);
      return partitionsOf(topic).reduce(
        (sum, partition) => sum + partition.end - of.progressOf(partition).committed,
        0,
      );
    },
    sender: () =>
      orderedSender("memory-log", (message) => {
        const partitions = partitionsOf(message.topic);
        const place =
          message.key === undefined ? keyless++ % partitions.length : partitionOf(message.key, partitions.length);
        partitions[place]?.append(message);
        return { status: "sent" };
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
