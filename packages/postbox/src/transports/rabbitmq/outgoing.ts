import { PostboxError } from "../../errors.js";
import type { Message } from "../../message/message.js";
import type { Outcome } from "../../transport.js";
import { type AmqpMessage, type ContentMode, toAmqp } from "./amqp-message.js";
import { failed, noExchange, rejected, tooLarge, type Unrouted, uncharged } from "./outcomes.js";
import { checkedRoute, type Route } from "./route.js";

export interface OutgoingOptions {
  /** The broker's address, for errors. */
  readonly place: string;
  readonly route: (message: Pick<Message, "topic" | "type">) => Route;
  readonly mode: ContentMode;
  readonly maxMessageBytes: number;
  readonly unrouted: Unrouted;
}

/** A message, encoded and routed. */
export interface Ready {
  readonly message: Message;
  readonly to: Route;
  readonly amqp: AmqpMessage;
}

/** A message that is not published, and its outcome. */
interface Refused {
  readonly refused: Outcome;
}

/** The messages of one batch as RabbitMQ takes them. A fault of one message is that message's outcome only. */
export interface Outgoing {
  /** The exchanges that they are published to. */
  readonly exchanges: ReadonlySet<string>;
  /** Encodes one message, or says why it is not published. */
  ready(index: number, missing: ReadonlySet<string>): Ready | Refused;
  /** Its outcome if the broker has closed the channel because of one exchange. */
  failedAt(index: number, code: number, reason: string): Outcome;
  /** Its outcome if the broker has closed the channel because of a body larger than this. */
  failedAsLarger(index: number, maxBytes: number): Outcome;
}

export function createOutgoing(
  messages: readonly Message[],
  { place, route, mode, maxMessageBytes, unrouted }: OutgoingOptions,
): Outgoing {
  const routes = messages.map((message) => prepare(message, () => checkedRoute(route, message)));
  const routeOf = (index: number) => routes[index] as Route | Refused;
  const messageOf = (index: number) => messages[index] as Message;

  /** Why a message is not published, if that is known before. */
  function refusal({ message, to: { exchange }, amqp: { content } }: Ready, missing: ReadonlySet<string>) {
    if (missing.has(exchange)) return unrouted(message, noExchange(message.id, exchange));
    return content.length > maxMessageBytes ? tooLarge(message.id, content.length, maxMessageBytes, place) : undefined;
  }

  function ready(index: number, missing: ReadonlySet<string>): Ready | Refused {
    const [message, to] = [messageOf(index), routeOf(index)];
    if ("refused" in to) return to;
    const amqp = prepare(message, () => toAmqp(message, mode));
    if ("refused" in amqp) return amqp;
    const found = { message, to, amqp };
    const refused = refusal(found, missing);
    return refused === undefined ? found : { refused };
  }

  return {
    exchanges: new Set(routes.flatMap((to) => ("refused" in to ? [] : [to.exchange]))),
    ready,
    failedAt(index, code, reason) {
      const to = routeOf(index);
      return "refused" in to ? to.refused : atExchange(messageOf(index), to, code, reason, unrouted);
    },
    failedAsLarger(index, maxBytes) {
      const found = ready(index, new Set());
      if ("refused" in found) return found.refused;
      const { id } = found.message;
      const bytes = found.amqp.content.length;
      return bytes > maxBytes ? tooLarge(id, bytes, maxBytes, place) : uncharged(id, "it was too large");
    },
  };
}

/** If this throws, only this message is rejected, and the others are sent. */
function prepare<R>(message: Message, work: () => R): R | Refused {
  try {
    return work();
  } catch (cause) {
    if (cause instanceof PostboxError) return { refused: rejected(cause) };
    const why = cause instanceof Error ? cause.message : String(cause);
    const text = `message ${message.id} cannot be encoded: ${why}; correct the message`;
    return { refused: rejected(new PostboxError("message-invalid", text, { cause })) };
  }
}

function atExchange(
  message: Message,
  { exchange, routingKey }: Route,
  code: number,
  reason: string,
  unrouted: Unrouted,
): Outcome {
  const { id } = message;
  // A topic permission covers one routing key, so messages with other keys are not charged.
  const topic = /access to topic '(.*)' in exchange '/.exec(reason)?.[1];
  if (reason.includes(`exchange '${exchange}'`) && (topic === undefined || topic === routingKey)) {
    if (code === 404) return unrouted(message, noExchange(id, exchange));
    const text =
      `the user may not publish message ${id} to exchange ${exchange}: ${reason}; ` + "grant the right to write there";
    return failed(new PostboxError("publish-failed", text));
  }
  return uncharged(id, reason);
}
