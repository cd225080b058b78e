import type { GetMessage, Options } from "amqplib";

/** Which attempt the next delivery is; and why it was parked. */
export const attemptHeader = "postbox-attempt";
export const reasonHeader = "postbox-reason";
const topicHeader = "postbox-topic";
/** Of one delivery, and not of the message: it would grow with every turn. */
const passing = /^(x-(death$|first-death-|last-death-|delivery-count$)|postbox-publish$)/;

type Received = Pick<GetMessage, "properties"> & { readonly fields: { readonly exchange: string } };

/** The same message for another queue of ours, with these headers; one that is undefined is left out. */
export function copyOf({ fields, properties }: Received, headers: Readonly<Record<string, unknown>>) {
  const { contentType, contentEncoding, priority, correlationId, replyTo, messageId, timestamp, type, appId } =
    properties;
  const kept = { contentType, contentEncoding, priority, correlationId, replyTo, messageId, timestamp, type, appId };
  const own = Object.entries(properties.headers ?? {}).filter(([name]) => !passing.test(name));
  // On its way back it comes from no exchange.
  const topic = fields.exchange === "" ? {} : { [topicHeader]: fields.exchange };
  return {
    ...(defined(kept) as Options.Publish),
    persistent: true,
    headers: defined({ ...topic, ...Object.fromEntries(own), ...headers }),
  };
}

function defined(values: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));
}
