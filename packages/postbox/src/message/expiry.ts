import { PermanentError } from "../errors.js";
import type { Message } from "./message.js";

/**
 * How many ms are left until a message expires, by the clock `now`; Infinity if it never does. Another host's clock set
 * the expiry.
 */
export function lifeLeftMs({ extensions: { expirytime } }: Message, now: number): number {
  return expirytime === undefined ? Number.POSITIVE_INFINITY : Date.parse(expirytime) - now;
}

export function expiredError({ id, type, extensions }: Message): PermanentError {
  return new PermanentError(`message ${id} of type ${type} expired at ${extensions.expirytime}`, {
    code: "message-expired",
  });
}
