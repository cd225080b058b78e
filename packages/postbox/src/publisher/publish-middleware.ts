import type { Message } from "../message/message.js";

/** Passes messages on, towards the broker or the outbox. */
export type PublishNext = (messages: readonly Message[]) => Promise<void>;

/**
 * Wraps a publisher's messages: it may replace them with new objects, inspect them, or refuse them by throwing. The
 * first one in a list is the outermost. Calling `next` more than once publishes more than once.
 */
export type PublishMiddleware = (messages: readonly Message[], next: PublishNext) => Promise<void>;

export function composePublish(middleware: readonly PublishMiddleware[], last: PublishNext): PublishNext {
  return middleware.reduceRight<PublishNext>((next, current) => (messages) => current(messages, next), last);
}
