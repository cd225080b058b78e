import type { ConfirmChannel } from "amqplib";
import { PostboxError } from "../../errors.js";
import type { AmqpMessage } from "./amqp-message.js";

/** How a publish ended: confirmed and routed, or why not. */
export type Confirmation = "routed" | "unroutable" | "nacked" | "lost";

/**
 * A channel on which every publish is mandatory and confirmed. An unroutable message is confirmed too, but returned
 * before that. A number identifies it, since two messages in flight may have the same id.
 */
export interface ConfirmedPublishing {
  /** Whether it accepts another publish without waiting for `drained`. */
  readonly room: boolean;
  /** Takes the message over: it writes a number into it, so it must not be used again. */
  publish(exchange: string, routingKey: string, message: AmqpMessage, done: (how: Confirmation) => void): void;
  /** Resolves when the socket accepts more, or is closed. */
  drained(): Promise<void>;
}

/** The number of the publish on its channel. */
const numberHeader = "postbox-publish";

export function confirmedPublishing(channel: ConfirmChannel): ConfirmedPublishing {
  const returned = new Set<number>();
  let published = 0;
  let room = true;
  let drained = () => {};
  let draining: Promise<void> | undefined;

  const flow = () => {
    room = true;
    draining = undefined;
    drained();
  };
  channel.on("return", (message) => returned.add(message.properties.headers?.[numberHeader]));
  channel.on("drain", flow);
  channel.on("close", flow);

  return {
    get room() {
      return room;
    },
    publish(exchange, routingKey, { content, properties }, done) {
      const number = ++published;
      properties.headers[numberHeader] = number;
      room = channel.publish(exchange, routingKey, content, properties, (error) => {
        if (error !== null) done(/nacked/.test((error as Error).message) ? "nacked" : "lost");
        else done(returned.delete(number) ? "unroutable" : "routed");
      });
    },
    async drained() {
      if (room) return;
      draining ??= new Promise((resolve) => {
        drained = resolve;
      });
      await draining;
    },
  };
}

export function unroutable(id: string, exchange: string, routingKey: string): PostboxError {
  const where = exchange === "" ? `queue ${routingKey}` : `exchange ${exchange} with the key ${routingKey}`;
  return new PostboxError(
    "unroutable",
    `no queue takes message ${id} from ${where}; start its consumer first, ` +
      "or make its queue with messaging.prepare() there",
  );
}
