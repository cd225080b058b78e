import type { Message } from "../message/message.js";

/** Hands messages on, towards the broker or the outbox. */
export type PublishNext = (messages: readonly Message[]) => Promise<void>;

/**
 * Stands between a publisher and where its messages go: may change them (as new objects), look at them, or refuse them
 * by throwing. The first of a list is the outermost. Calling `next` more than once publishes more than once.
 */
export type PublishMiddleware = (messages: readonly Message[], next: PublishNext) => Promise<void>;

export function composePublish(middleware: readonly PublishMiddleware[], last: PublishNext): PublishNext {
  return middleware.reduceRight<PublishNext>((next, current) => (messages) => current(messages, next), last);
}
