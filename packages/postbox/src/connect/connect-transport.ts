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

/**
 * Makes a transport from a URL, and loads only the driver that it needs:
 *
 * - `memory:`: a broker inside of this process; each call makes another one
 * - `amqp://` and `amqps://`: RabbitMQ, through `amqplib`
 */
export async function connectTransport(url: string): Promise<ConnectedTransport> {
  if (/^amqps?:\/\//.test(url)) return rabbitmq(url);
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

async function rabbitmq(url: string): Promise<ConnectedTransport> {
  const { rabbitmqReceiver, rabbitmqSender } = await loadDriver(
    "amqplib",
    () => import("../transports/rabbitmq/index.js"),
  );
  const senders: { close(): Promise<void> }[] = [];
  return {
    kind: "rabbitmq",
    sender() {
      const sender = rabbitmqSender({ url });
      senders.push(sender);
      return sender;
    },
    receiver: (queue) => rabbitmqReceiver({ url, queue }),
    async close() {
      await Promise.all(senders.map((sender) => sender.close()));
    },
  };
}
