import type { GetMessage } from "amqplib";
import { brokerHeaders } from "../../message/reserved-headers.js";
import { type AmqpProperties, topicHeader } from "./amqp-message.js";

/** The number of the next delivery's attempt, and the reason for parking. */
export const attemptHeader = "postbox-attempt";
export const reasonHeader = "postbox-reason";
/** Headers of one delivery rather than the message. A copy would accumulate them, or be routed to others by them. */
const passing = new RegExp(`^(${brokerHeaders}|postbox-publish$|CC$|BCC$)`, "i");

type Received = Pick<GetMessage, "properties"> & { readonly fields: { readonly exchange: string } };

/** For errors. Messages of other publishers may have no id. */
export function idOf({ properties }: Pick<GetMessage, "properties">): string {
  return properties.messageId === undefined ? "(without an id)" : String(properties.messageId);
}

/** The same message for another queue of the consumer, with these headers; undefined ones are left out. */
export function copyOf({ fields, properties }: Received, headers: Readonly<Record<string, unknown>>): AmqpProperties {
  const { contentType, contentEncoding, priority, correlationId, replyTo, messageId, timestamp, type, appId } =
    properties;
  const kept = { contentType, contentEncoding, priority, correlationId, replyTo, messageId, type, appId };
  const own = Object.entries(properties.headers ?? {}).filter(([name]) => !passing.test(name));
  // A message that returns from a wait queue was published to no exchange.
  const topic = fields.exchange === "" ? {} : { [topicHeader]: fields.exchange };
  return {
    ...defined(kept),
    // The protocol allows larger timestamps than the client can write.
    ...(Number.isSafeInteger(timestamp) && { timestamp }),
    persistent: true,
    mandatory: true,
    headers: defined({ ...topic, ...Object.fromEntries(own), ...headers }),
  };
}

/**
 * With headers that every client can write: no tables, no arrays, no numbers that are not finite. Consumers read the
 * same message.
 */
export function withPlainHeaders<R extends Pick<GetMessage, "properties">>(raw: R): R {
  const plain = Object.entries(raw.properties.headers ?? {}).flatMap(([name, value]): [string, unknown][] => {
    if (typeof value === "string" || typeof value === "boolean") return [[name, value]];
    if (typeof value !== "number") return [];
    return [[name, Number.isFinite(value) ? value : String(value)]];
  });
  return { ...raw, properties: { ...raw.properties, headers: Object.fromEntries(plain) } };
}

/** With no headers but its attributes. */
export function withoutOthers<R extends Pick<GetMessage, "properties">>(raw: R): R {
  const plain = withPlainHeaders(raw);
  const own = Object.entries(plain.properties.headers ?? {}).filter(([name]) =>
    /^(cloudEvents[:_]|postbox-(?!header-))/.test(name),
  );
  return { ...plain, properties: { ...plain.properties, headers: Object.fromEntries(own) } };
}

function defined(values: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));
}
