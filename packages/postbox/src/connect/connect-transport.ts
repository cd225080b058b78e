import { callback, checkOptions } from "../options.js";
import type { Telemetry } from "../telemetry/events.js";
import type { Receiver, Sender } from "../transport.js";
import { loadDriver } from "./load-driver.js";
import { unsupportedUrl } from "./unsupported-url.js";

/** A broker made from a URL, with what it opened: `close` ends it. */
export interface ConnectedTransport {
  readonly kind: "memory" | "rabbitmq";
  sender(): Sender;
  /** A receiver on the queue of this name. */
  receiver(queue: string): Receiver;
  close(): Promise<void>;
}

export interface ConnectTransportOptions {
  /** Listens to what happens to its connections. Defaults to nobody. */
  readonly telemetry?: Telemetry;
}

/**
 * Makes a transport from a URL, and loads only the driver that it needs:
 *
 * - `memory:`: a broker inside of this process; each call makes another one
 * - `amqp://` and `amqps://`: RabbitMQ, through `amqplib`
 */
export async function connectTransport(
  url: string,
  options: ConnectTransportOptions = {},
): Promise<ConnectedTransport> {
  checkOptions("connectTransport", options, { telemetry: callback });
  if (/^amqps?:\/\//.test(url)) return rabbitmq(url, options);
  if (!url.startsWith("memory:")) throw unsupportedUrl("transport", url, "memory:, amqp://, amqps://");
  const { memoryBroker } = await import("../transports/memory/memory-broker.js");
  const broker = memoryBroker();
  return {
    kind: "memory",
    sender: () => broker.sender(),
    receiver: (queue) => broker.receiver({ queue }),
    close: async () => {},
  };
}

async function rabbitmq(url: string, options: ConnectTransportOptions): Promise<ConnectedTransport> {
  const { rabbitmqReceiver, rabbitmqSender } = await loadDriver(
    "amqplib",
    () => import("../transports/rabbitmq/index.js"),
  );
  const senders: { close(): Promise<void> }[] = [];
  return {
    kind: "rabbitmq",
    sender() {
      const sender = rabbitmqSender({ url, ...options });
      senders.push(sender);
      return sender;
    },
    receiver: (queue) => rabbitmqReceiver({ url, queue, ...options }),
    async close() {
      await Promise.all(senders.map((sender) => sender.close()));
    },
  };
}
