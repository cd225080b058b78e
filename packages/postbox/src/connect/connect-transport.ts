import { callback, checkOptions, object } from "../options.js";
import type { Telemetry } from "../telemetry/events.js";
import type { Receiver, Sender } from "../transport.js";
import type { RabbitmqReceiverOptions, RabbitmqSenderOptions } from "../transports/rabbitmq/index.js";
import { loadDriver } from "./load-driver.js";
import { unsupportedUrl } from "./unsupported-url.js";

/** A broker made from a URL. `close` ends the connections that it opened. */
export interface ConnectedTransport {
  readonly kind: "memory" | "rabbitmq";
  sender(): Sender;
  /** A receiver of the queue with this name. Its options override those of `connectTransport`. */
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
}

/** Options of one receiver: those of the transport that the URL names. */
export interface ConnectedReceiverOptions {
  /**
   * More options of RabbitMQ's receiver, for `amqp://` and `amqps://` only. Defaults to those of `connectTransport`.
   */
  readonly rabbitmq?: Omit<RabbitmqReceiverOptions, "url" | "queue" | "telemetry">;
}

/**
 * Makes a transport from a URL. It loads only the driver that the URL needs.
 *
 * - `memory:`: a broker inside of this process; each call makes a new one
 * - `amqp://` and `amqps://`: RabbitMQ, through `amqplib`
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
  checkOptions("connectTransport", options, { telemetry: callback, rabbitmq: object });
  checkOptions("connectTransport: rabbitmq", options.rabbitmq ?? {}, { sender: object, receiver: object });
  if (/^amqps?:\/\//.test(url)) return rabbitmq(url, options);
  if (typeof url !== "string" || !url.startsWith("memory:")) {
    throw unsupportedUrl("transport", url, "memory:, amqp://, amqps://");
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
  const senders: { close(): Promise<void> }[] = [];
  const close = async () => {
    await Promise.all(senders.map((sender) => sender.close()));
  };
  return {
    kind: "rabbitmq",
    sender() {
      const sender = rabbitmqSender({ ...more.sender, ...shared });
      senders.push(sender);
      return sender;
    },
    receiver(queue, options) {
      const { rabbitmq: own } = checkReceiver(options);
      return rabbitmqReceiver({ ...more.receiver, ...own, ...shared, queue });
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}

function checkReceiver(options: ConnectedReceiverOptions = {}): ConnectedReceiverOptions {
  checkOptions("receiver", options, { rabbitmq: object });
  return options;
}
