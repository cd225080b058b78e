import { PostboxError } from "../errors.js";
import { scrub } from "./scrub.js";
import { shortened } from "./shortened.js";

const storedLength = 2_048;

/**
 * The text of an error, as it is stored beside a message. It is scrubbed, since readers of the tables must not learn
 * the broker's password, and cut, since long texts would fill the tables. It is scrubbed first: half of a secret would
 * not be recognized.
 */
export function storedError(text: unknown): string {
  return shortened(scrub(typeof text === "string" ? text : PostboxError.from(text).message), storedLength);
}
