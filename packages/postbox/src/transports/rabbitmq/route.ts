import { PostboxError } from "../../errors.js";
import { answered } from "../../internal/answer.js";
import type { Message } from "../../message/message.js";

/** Where a message is published. */
export interface Route {
  /** An exchange of type `topic`, or the empty name for the default exchange. */
  readonly exchange: string;
  readonly routingKey: string;
}

/**
 * The result of the user's `route` for this message. If it throws or returns no route, this throws `message-invalid`:
 * the message is at fault, not the broker.
 */
export function checkedRoute<M extends Pick<Message, "topic" | "type">>(
  route: (message: M) => Route,
  message: M,
): Route {
  let found: Partial<Route> | undefined;
  try {
    found = answered(route(message));
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new PostboxError("message-invalid", `'route' threw for type ${message.type}: ${why}; correct 'route'`, {
      cause,
    });
  }
  const { exchange, routingKey } = found ?? {};
  if (isShort(exchange) && isShort(routingKey)) return { exchange, routingKey };
  const text =
    `'route' answered no route for type ${message.type}; answer { exchange, routingKey }, texts of at most 255 ` +
    "bytes";
  throw new PostboxError("message-invalid", text);
}

function isShort(value: unknown): value is string {
  return typeof value === "string" && Buffer.byteLength(value) <= 255;
}

/** The exchange with the topic's name, and the last part of the type as the routing key. */
export function routeOf({ topic, type }: Pick<Message, "topic" | "type">): Route {
  return { exchange: topic, routingKey: type.slice(type.lastIndexOf(".") + 1) };
}
