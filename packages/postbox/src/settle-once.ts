import { PostboxError } from "./errors.js";

/**
 * Guards one delivery: the first call passes, any later one throws `delivery-settled`. The argument is the verb of the
 * settlement, for the error's text.
 *
 * @example
 * ```ts
 * const settle = settleOnce(message.id);
 * settle("ack");
 * settle("nack"); // throws: ack() was called before
 * ```
 */
export function settleOnce(id: string): (verb: string) => void {
  let by: string | undefined;
  return (verb) => {
    if (by !== undefined) throw alreadySettled(id, verb, by);
    by = verb;
  };
}

/** The same error for a delivery that keeps its own state. */
export function alreadySettled(id: string, verb: string, by: string): PostboxError {
  return new PostboxError(
    "delivery-settled",
    `${verb}() on the delivery of ${id}, which ${by}() has settled already; settle each delivery once`,
  );
}
