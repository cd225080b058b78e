import { ConfigError } from "../../errors.js";
import { type Runtime, runtimeWith } from "../../internal/runtime.js";
import type { Message } from "../../message/message.js";
import { checkOptions, count, list, object, text } from "../../options.js";
import type { Receiver, Sender, Subscription } from "../../transport.js";
import { type OnUnroutable, onUnroutableRule } from "../unroutable.js";
import { MemoryConsumer } from "./memory-consumer.js";
import { MemoryQueue, type ParkedMessage } from "./memory-queue.js";
import { memorySender } from "./memory-sender.js";

export interface MemoryBrokerOptions {
  /** Where delays come from. Defaults to the system's time. */
  readonly runtime?: Partial<Runtime>;
}

/** What a queue wants: the messages of a topic, or of one type in it. An event definition is one. */
export interface Binding {
  readonly topic: string;
  /** Defaults to every type of the topic. */
  readonly type?: string;
}

export interface MemoryReceiverOptions {
  /** Receivers of one queue share its messages; every queue gets its own copy. Defaults to the consumer's name. */
  readonly queue?: string;
  /** Bound to the queue at once, besides what the consumer has handlers for, which is bound when it starts. */
  readonly events?: readonly Binding[];
  /** The most deliveries that are unsettled at a time. Defaults to 100. */
  readonly prefetch?: number;
  /** The most bytes that are unsettled at a time; one larger message still comes alone. Defaults to 16 MiB. */
  readonly prefetchBytes?: number;
}

export interface MemorySenderOptions {
  /**
   * What becomes of a message that no queue takes: `park` it after the relay's attempts, `drop` it, or let it `wait`;
   * or a function that chooses by message. A direct publisher rejects with `park` and `wait`, and resolves with `drop`.
   * Defaults to `park`.
   */
  readonly onUnroutable?: OnUnroutable;
}

export interface MemoryReceiver extends Receiver {
  /**
   * As when the process crashes: every unsettled delivery is delivered to others as `redelivered`, its `signal` is
   * aborted, what this receiver settles later has no effect, and `receive` returns.
   */
  crash(): void;
}

/** A broker in memory, with queues as RabbitMQ has them. Everything in it is gone with the process. */
export interface MemoryBroker {
  sender(options?: MemorySenderOptions): Sender;
  receiver(options?: MemoryReceiverOptions): MemoryReceiver;
  /** Makes a queue and binds it, before anyone receives from it; may be repeated. */
  bind(queue: string, events: readonly Binding[]): void;
  /** Takes back what `bind` did: the queue stays, with what it has. */
  unbind(queue: string, events: readonly Binding[]): void;
  /** What was parked from a queue, oldest first. */
  parked(queue: string): readonly ParkedMessage[];
  /** How many messages a queue has, those that are delivered but unsettled or wait for a retry included. */
  depth(queue: string): number;
}

/** Makes a broker without any queue. */
export function memoryBroker(options: MemoryBrokerOptions = {}): MemoryBroker {
  checkOptions("memoryBroker", options, { runtime: object });
  const runtime = runtimeWith(options.runtime);
  const queues = new Map<string, MemoryQueue>();
  const bindings = new Map<string, Set<MemoryQueue>>();

  const queue = (name: string): MemoryQueue => {
    const found = queues.get(name) ?? new MemoryQueue(name);
    queues.set(name, found);
    return found;
  };
  const bind = (name: string, events: readonly Binding[]): void => {
    for (const { topic, type } of events) {
      const bound = bindings.get(bindingKey(topic, type)) ?? new Set();
      bindings.set(bindingKey(topic, type), bound.add(queue(name)));
    }
  };
  const queuesFor = ({ topic, type }: Message): Set<MemoryQueue> =>
    new Set([...(bindings.get(bindingKey(topic, type)) ?? []), ...(bindings.get(bindingKey(topic)) ?? [])]);

  return {
    bind,
    unbind(name, events) {
      for (const { topic, type } of events) bindings.get(bindingKey(topic, type))?.delete(queue(name));
    },
    sender(senderOptions = {}) {
      checkOptions("memoryBroker.sender", senderOptions, { onUnroutable: onUnroutableRule });
      return memorySender(queuesFor, senderOptions.onUnroutable ?? "park", runtime);
    },
    parked: (name) => [...queue(name).parked],
    depth: (name) => queue(name).depth,
    receiver(receiverOptions = {}) {
      checkOptions("memoryBroker.receiver", receiverOptions, {
        queue: text,
        events: list,
        prefetch: count,
        prefetchBytes: count,
      });
      const { queue: queueName, events = [], prefetch = 100, prefetchBytes = 16 * 1024 * 1024 } = receiverOptions;
      if (queueName !== undefined) bind(queueName, events);
      else if (events.length > 0) {
        throw new ConfigError(
          "option-invalid",
          "memoryBroker.receiver: 'events' needs 'queue', which they are bound to",
          {
            path: "queue",
          },
        );
      }
      const consumers = new Set<MemoryConsumer>();
      return {
        name: "memory",
        async prepare({ consumer, events: wanted }) {
          bind(queueName ?? consumer, wanted);
        },
        async receive(subscription: Subscription, signal: AbortSignal): Promise<void> {
          const name = queueName ?? subscription.consumer;
          bind(name, subscription.events);
          const consumer = new MemoryConsumer(queue(name), { prefetch, prefetchBytes }, runtime);
          consumers.add(consumer);
          try {
            await consumer.run(subscription, signal);
          } finally {
            consumers.delete(consumer);
          }
        },
        crash: () => {
          for (const consumer of consumers) consumer.crash();
        },
      };
    },
  };
}

function bindingKey(topic: string, type?: string): string {
  return JSON.stringify(type === undefined ? [topic] : [topic, type]);
}
