import { PostboxError } from "../errors.js";
import { scrub } from "./scrub.js";
import { shortened } from "./shortened.js";

const storedLength = 2_048;

/**
 * What is stored of an error in addition to its message. Scrubbed, since readers of the tables need not know the
 * broker's password, and limited, since long texts would fill the tables. Scrubbed before it is cut: half of a secret
 * would not be recognized.
 */
export function storedError(text: unknown): string {
  return shortened(scrub(typeof text === "string" ? text : PostboxError.from(text).message), storedLength);
}
