import { PostboxError } from "../../errors.js";
import type { Message } from "../../message/message.js";

/** Where a message goes on the broker. */
export interface Route {
  /** An exchange of type `topic`, or the empty name for the one that leads to a queue by its name. */
  readonly exchange: string;
  readonly routingKey: string;
}

/**
 * What a function of the user answers for this message. If it throws, or answers what is no route, that is the
 * message's fault and not the broker's: it throws `message-invalid`.
 */
export function checkedRoute<M extends Pick<Message, "topic" | "type">>(
  route: (message: M) => Route,
  message: M,
): Route {
  let found: Partial<Route> | undefined;
  try {
    found = route(message);
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

/** The exchange of the topic's name, and the last part of the type. */
export function routeOf({ topic, type }: Pick<Message, "topic" | "type">): Route {
  return { exchange: topic, routingKey: type.slice(type.lastIndexOf(".") + 1) };
}
