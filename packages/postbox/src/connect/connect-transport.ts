import type { Receiver, Sender } from "../transport.js";
import { unsupportedUrl } from "./unsupported-url.js";

/** A broker made from a URL, with what it opened: `close` ends it. */
export interface ConnectedTransport {
  readonly kind: "memory";
  sender(): Sender;
  /** A receiver on the queue of this name. */
  receiver(queue: string): Receiver;
  close(): Promise<void>;
}

/**
 * Makes a transport from a URL, and loads only the driver that it needs:
 *
 * - `memory:`: a broker inside of this process; each call makes another one
 */
export async function connectTransport(url: string): Promise<ConnectedTransport> {
  if (!url.startsWith("memory:")) throw unsupportedUrl("transport", url, "memory:");
  const { memoryBroker } = await import("../transports/memory/memory-broker.js");
  const broker = memoryBroker();
  return {
    kind: "memory",
    sender: () => broker.sender(),
    receiver: (queue) => broker.receiver({ queue }),
    close: async () => {},
  };
}
