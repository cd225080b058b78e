import { PermanentError } from "../errors.js";
import type { Message } from "./message.js";

/**
 * How many ms are left until a message is worthless, by the clock `now`; Infinity for one that never is. The moment was set
 * by another host's clock.
 */
export function lifeLeftMs({ extensions: { expirytime } }: Message, now: number): number {
  return expirytime === undefined ? Number.POSITIVE_INFINITY : Date.parse(expirytime) - now;
}

export function expiredError({ id, type, extensions }: Message): PermanentError {
  return new PermanentError(`message ${id} of type ${type} expired at ${extensions.expirytime}`, {
    code: "message-expired",
  });
}
