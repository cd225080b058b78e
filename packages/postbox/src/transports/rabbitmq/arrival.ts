import type { ConsumeMessage } from "amqplib";
import { PermanentError } from "../../errors.js";
import { messageBytes } from "../../message/attributes.js";
import type { Message } from "../../message/message.js";
import { fromAmqp } from "./amqp-message.js";
import { attemptHeader } from "./copy.js";
import { undecodable } from "./undecodable.js";

/** A delivery of the broker with the message in it, or why it cannot be read. */
export interface Arrival {
  readonly raw: ConsumeMessage;
  readonly read: Message | Error;
  readonly bytes: number;
  /** Whether it may be crashing its consumers. */
  readonly suspect: boolean;
}

export interface ReadingOptions {
  readonly queue: string;
  /** Whether to detect suspects. */
  readonly isolates: boolean;
  readonly unprefixed: boolean;
  readonly maxMessageBytes: number;
}

/**
 * A message that was delivered this often without an outcome may be the cause. Twice can be a restart and a lost
 * connection.
 */
const suspectAt = 3;

export function readArrival(raw: ConsumeMessage, options: ReadingOptions): Arrival {
  const { queue, isolates, unprefixed, maxMessageBytes } = options;
  const { exchange } = raw.fields;
  const bytes = raw.content.length;
  const unread = undecodable(raw.properties);
  if (unread !== undefined) {
    const text = `a message in ${queue} has headers that cannot be decoded: ${unread}; see what publishes it`;
    return { raw, read: new PermanentError(text, { code: "message-invalid" }), bytes, suspect: false };
  }
  const suspect = isolates && deliveriesOf(raw) >= suspectAt;
  try {
    const message = fromAmqp(raw as Parameters<typeof fromAmqp>[0], { exchange, unprefixed, maxMessageBytes });
    return { raw, read: message, bytes: messageBytes(message), suspect };
  } catch (error) {
    return { raw, read: error as Error, bytes, suspect };
  }
}

/** Only `retry()` spends attempts. */
export function attemptOf({ properties }: ConsumeMessage): number {
  return countIn(properties.headers?.[attemptHeader], 1);
}

/**
 * How often a quorum queue has delivered the message without learning an outcome. Other queues do not count, and a
 * publisher cannot set the count.
 */
function deliveriesOf({ fields, properties }: ConsumeMessage): number {
  return fields.redelivered ? countIn(properties.headers?.["x-delivery-count"], 0) : 0;
}

/** A publisher can write any header, so an implausible count is ignored. */
function countIn(header: unknown, least: number): number {
  const plausible = typeof header === "number" && Number.isInteger(header) && header >= least && header <= 1_000_000;
  return plausible ? header : least;
}

/** The pause before a message that cannot be set aside is given back: between a second and a minute. */
export function pauseAfter(raw: ConsumeMessage): number {
  return Math.min(60_000, 1000 * 2 ** Math.min(deliveriesOf(raw), 6));
}
