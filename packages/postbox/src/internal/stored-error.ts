import { PostboxError } from "../errors.js";
import { scrub } from "./scrub.js";
import { shortened } from "./shortened.js";

const storedLength = 2_048;

/**
 * What is kept of an error beside its message. Whoever may read the tables need not know the broker's password, and a
 * text without a bound would fill them. Cut off only when it is scrubbed: half of a secret would no longer be
 * recognised.
 */
export function storedError(text: unknown): string {
  return shortened(scrub(typeof text === "string" ? text : PostboxError.from(text).message), storedLength);
}
