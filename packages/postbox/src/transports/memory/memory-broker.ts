import { ConfigError } from "../../errors.js";
import { type Runtime, runtimeWith } from "../../internal/runtime.js";
import type { Message } from "../../message/message.js";
import { checkOptions, count, list, object, text } from "../../options.js";
import type { Receiver, Sender, Subscription } from "../../transport.js";
import { type OnUnroutable, onUnroutableRule } from "../unroutable.js";
import { MemoryConsumer } from "./memory-consumer.js";
import { MemoryQueue, type ParkedMessage } from "./memory-queue.js";
import { memorySender } from "./memory-sender.js";

/** Options of `memoryBroker`. */
export interface MemoryBrokerOptions {
  /** The clock of its delays. Defaults to the system's. */
  readonly runtime?: Partial<Runtime>;
}

/** What a queue is bound to: the messages of a topic, or of one type in it. An event definition is a binding. */
export interface Binding {
  readonly topic: string;
  /** Defaults to every type of the topic. */
  readonly type?: string;
}

/** Options of a receiver of `memoryBroker`. */
export interface MemoryReceiverOptions {
  /** Receivers of one queue share its messages; every queue gets its own copy. Defaults to the consumer's name. */
  readonly queue?: string;
  /** Bound to the queue at once. The events of the consumer's handlers are bound when it starts. */
  readonly events?: readonly Binding[];
  /** The most unsettled deliveries at a time. Defaults to 100. */
  readonly prefetch?: number;
  /** The most bytes of unsettled deliveries at a time; a larger message is delivered alone. Defaults to 16 MiB. */
  readonly prefetchBytes?: number;
}

/** Options of a sender of `memoryBroker`. */
export interface MemorySenderOptions {
  /**
   * What to do with a message that no queue is bound for: `park` it after the relay's attempts, `drop` it, let it
   * `wait`, or a function that chooses by message. A direct publisher rejects with `park` and `wait`, and resolves with
   * `drop`. Defaults to `park`.
   */
  readonly onUnroutable?: OnUnroutable;
}

export interface MemoryReceiver extends Receiver {
  /**
   * Acts like a crash of the process: every unsettled delivery is redelivered to others, its `signal` is aborted, this
   * receiver's later settlements have no effect, and `receive` returns.
   */
  crash(): void;
}

/** A broker in memory, with queues like RabbitMQ's. Everything in it is lost with the process. */
export interface MemoryBroker {
  sender(options?: MemorySenderOptions): Sender;
  receiver(options?: MemoryReceiverOptions): MemoryReceiver;
  /** Makes a queue and binds it, before a consumer receives from it. May be repeated. */
  bind(queue: string, events: readonly Binding[]): void;
  /** Removes bindings. The queue stays, with its messages. */
  unbind(queue: string, events: readonly Binding[]): void;
  /** The messages that were parked from a queue, oldest first. */
  parked(queue: string): readonly ParkedMessage[];
  /** How many messages a queue has, including those that are delivered but unsettled, or wait for a retry. */
  depth(queue: string): number;
}

/**
 * Makes a broker without queues.
 *
 * @example
 * ```ts
 * const broker = memoryBroker();
 * broker.bind("billing", [OrderPlaced]);
 * const relay = createRelay(store, broker.sender());
 * const receiver = broker.receiver({ queue: "billing" });
 * ```
 */
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
