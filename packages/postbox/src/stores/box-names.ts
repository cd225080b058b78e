import { ConfigError } from "../errors.js";
import { inboxOf } from "../store.js";

/**
 * The consumer of an inbox; undefined for the outbox. Throws for any other name.
 *
 * @example
 * ```ts
 * consumerOf("inbox/billing"); // "billing"
 * ```
 */
export function consumerOf(box: string): string | undefined {
  requireBox(box);
  return box === outbox ? undefined : box.slice(inbox.length);
}

const outbox = "outbox";
const inbox = inboxOf("");

/**
 * Throws unless this can be the name of a box. A statement on missing tables would abort the caller's transaction.
 *
 * @example
 * ```ts
 * requireBox("inbox/billing"); // throws a ConfigError if this is no name of a box
 * ```
 */
export function requireBox(box: string): void {
  if (box === outbox || (box.startsWith(inbox) && box.length > inbox.length)) return;
  throw new ConfigError(
    "option-invalid",
    `there is no box '${box}'; there is '${outbox}', and one for each consumer, such as '${inboxOf("billing")}'`,
    { path: "box" },
  );
}
