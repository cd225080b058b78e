import { callback, checkOptions, object } from "../options.js";
import type { Telemetry } from "../telemetry/events.js";
import type { Receiver, Sender } from "../transport.js";
import type { KafkaReceiverOptions, KafkaSenderOptions } from "../transports/kafka/index.js";
import type { RabbitmqReceiverOptions, RabbitmqSenderOptions } from "../transports/rabbitmq/index.js";
import { loadDriver } from "./load-driver.js";
import { unsupportedUrl } from "./unsupported-url.js";

/** A broker made from a URL. `close` ends the connections that it opened. */
export interface ConnectedTransport {
  readonly kind: "memory" | "rabbitmq" | "kafka";
  sender(): Sender;
  /** A receiver of the queue, or of the group, with this name. Its options override those of `connectTransport`. */
  receiver(queue: string, options?: ConnectedReceiverOptions): Receiver;
  close(): Promise<void>;
  /** The same as `close`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** Options of `connectTransport`: those of the transport that the URL names. */
export interface ConnectTransportOptions {
  /**
   * Receives the events of its connections. Defaults to warnings and errors on the console; `silent` turns that off.
   */
  readonly telemetry?: Telemetry;
  /** More options of RabbitMQ's senders and receivers, for `amqp://` and `amqps://` only. Defaults to none. */
  readonly rabbitmq?: {
    readonly sender?: Omit<RabbitmqSenderOptions, "url" | "telemetry">;
    readonly receiver?: Omit<RabbitmqReceiverOptions, "url" | "queue" | "telemetry">;
  };
  /** More options of Kafka's senders and receivers, for `kafka://` and `kafkas://` only. Defaults to none. */
  readonly kafka?: {
    readonly sender?: Omit<KafkaSenderOptions, "url" | "telemetry">;
    readonly receiver?: Omit<KafkaReceiverOptions, "url" | "group" | "telemetry">;
  };
}

/** Options of one receiver: those of the transport that the URL names. */
export interface ConnectedReceiverOptions {
  /**
   * More options of RabbitMQ's receiver, for `amqp://` and `amqps://` only. Defaults to those of `connectTransport`.
   */
  readonly rabbitmq?: Omit<RabbitmqReceiverOptions, "url" | "queue" | "telemetry">;
  /** More options of Kafka's receiver, for `kafka://` and `kafkas://` only. Defaults to those of `connectTransport`. */
  readonly kafka?: Omit<KafkaReceiverOptions, "url" | "group" | "telemetry">;
}

/**
 * Makes a transport from a URL. It loads only the driver that the URL needs.
 *
 * - `memory:`: a broker inside of this process; each call makes a new one
 * - `amqp://` and `amqps://`: RabbitMQ, through `amqplib`
 * - `kafka://` and `kafkas://`: Kafka, through `kafkajs`, unless another `client` is given
 *
 * @example
 * ```ts
 * await using rabbitmq = await connectTransport("amqp://localhost");
 * const relay = createRelay(store, rabbitmq.sender());
 * ```
 */
export async function connectTransport(
  url: string,
  options: ConnectTransportOptions = {},
): Promise<ConnectedTransport> {
  checkOptions("connectTransport", options, { telemetry: callback, rabbitmq: object, kafka: object });
  checkOptions("connectTransport: rabbitmq", options.rabbitmq ?? {}, { sender: object, receiver: object });
  checkOptions("connectTransport: kafka", options.kafka ?? {}, { sender: object, receiver: object });
  if (/^amqps?:\/\//.test(url)) return rabbitmq(url, options);
  if (/^kafkas?:\/\//.test(url)) return kafka(url, options);
  if (typeof url !== "string" || !url.startsWith("memory:")) {
    throw unsupportedUrl("transport", url, "memory:, amqp://, amqps://, kafka://, kafkas://");
  }
  const { memoryBroker } = await import("../transports/memory/memory-broker.js");
  const broker = memoryBroker();
  const close = async () => {};
  return {
    kind: "memory",
    sender: () => broker.sender(),
    receiver(queue, options) {
      checkReceiver(options);
      return broker.receiver({ queue });
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}

async function rabbitmq(
  url: string,
  { telemetry, rabbitmq: more = {} }: ConnectTransportOptions,
): Promise<ConnectedTransport> {
  const { rabbitmqReceiver, rabbitmqSender } = await loadDriver(
    "amqplib",
    () => import("../transports/rabbitmq/index.js"),
  );
  const shared = { url, ...(telemetry && { telemetry }) };
  return closing(
    "rabbitmq",
    () => rabbitmqSender({ ...more.sender, ...shared }),
    (queue, { rabbitmq: own }) => rabbitmqReceiver({ ...more.receiver, ...own, ...shared, queue }),
  );
}

async function kafka(
  url: string,
  { telemetry, kafka: more = {} }: ConnectTransportOptions,
): Promise<ConnectedTransport> {
  // Its driver is loaded when it connects, since a client may be given.
  const { kafkaReceiver, kafkaSender } = await import("../transports/kafka/index.js");
  const shared = { url, ...(telemetry && { telemetry }) };
  return closing(
    "kafka",
    () => kafkaSender({ ...more.sender, ...shared }),
    (group, { kafka: own }) => kafkaReceiver({ ...more.receiver, ...own, ...shared, group }),
  );
}

/** A transport whose `close` closes its senders. */
function closing(
  kind: ConnectedTransport["kind"],
  make: () => Sender & { close(): Promise<void> },
  receiver: (queue: string, options: ConnectedReceiverOptions) => Receiver,
): ConnectedTransport {
  const senders: { close(): Promise<void> }[] = [];
  const close = async () => {
    await Promise.all(senders.map((sender) => sender.close()));
  };
  return {
    kind,
    sender() {
      const sender = make();
      senders.push(sender);
      return sender;
    },
    receiver: (queue, options) => receiver(queue, checkReceiver(options)),
    close,
    [Symbol.asyncDispose]: close,
  };
}

function checkReceiver(options: ConnectedReceiverOptions = {}): ConnectedReceiverOptions {
  checkOptions("receiver", options, { rabbitmq: object, kafka: object });
  return options;
}
