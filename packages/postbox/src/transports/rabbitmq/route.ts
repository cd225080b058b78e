import type { Message } from "../../message/message.js";

/** Where a message goes on the broker. */
export interface Route {
  /** An exchange of type `topic`, or the empty name for the one that leads to a queue by its name. */
  readonly exchange: string;
  readonly routingKey: string;
}

/** The exchange of the topic's name, and the last part of the type. */
export function routeOf({ topic, type }: Pick<Message, "topic" | "type">): Route {
  return { exchange: topic, routingKey: type.slice(type.lastIndexOf(".") + 1) };
}
