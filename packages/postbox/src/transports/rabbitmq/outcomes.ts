import { PostboxError } from "../../errors.js";
import type { Message } from "../../message/message.js";
import type { Outcome } from "../../transport.js";
import { type Confirmation, unroutable } from "./confirms.js";
import type { Route } from "./route.js";

/** The outcome of an unroutable message. */
export type Unrouted = (message: Message, error: PostboxError) => Outcome;

const sent: Outcome = { status: "sent" };

export function failed(error: PostboxError): Outcome {
  return { status: "failed", error };
}

export function rejected(error: PostboxError): Outcome {
  return { status: "rejected", error };
}

/** The outcome of a message that the broker has confirmed, returned or refused. */
export function confirmedOutcome(
  how: Exclude<Confirmation, "lost">,
  message: Message,
  { exchange, routingKey }: Route,
  { place, unrouted }: { readonly place: string; readonly unrouted: Unrouted },
): Outcome {
  if (how === "routed") return sent;
  const { id } = message;
  if (how === "unroutable") return unrouted(message, unroutable(id, exchange, routingKey));
  const text = `${place} could not take message ${id} into all of its queues; it is sent again`;
  return failed(new PostboxError("publish-failed", text));
}

/** The broker closed the channel because of another message: this one is sent again, and no attempt is counted. */
export function uncharged(id: string, reason: string): Outcome {
  const text = `message ${id} was on a channel that the broker closed for another one: ${reason}; it is sent again`;
  return { status: "failed", error: new PostboxError("publish-failed", text), uncounted: true };
}

export function tooLarge(id: string, bytes: number, most: number, place: string): Outcome {
  const text = `message ${id} has ${bytes} bytes, ${place} takes ${most}; send a reference instead`;
  return rejected(new PostboxError("message-too-large", text));
}

export function notTaken(id: string | undefined, reason: string, place: string): Outcome {
  const text = `${place} does not take message ${id}: ${reason}; change the message, or the broker's limits`;
  return rejected(new PostboxError("publish-failed", text));
}

export function unsendable(id: string, why: string): Outcome {
  return rejected(new PostboxError("message-invalid", `message ${id} cannot be sent: ${why}`));
}

export function noExchange(id: string, exchange: string): PostboxError {
  const text =
    `there is no exchange ${exchange} for message ${id}; start its consumer first, ` +
    "or make its queue with messaging.prepare() there";
  return new PostboxError("unroutable", text);
}
