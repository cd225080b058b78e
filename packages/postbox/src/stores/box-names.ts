import { ConfigError } from "../errors.js";
import { inboxOf } from "../store.js";

/** The consumer whose inbox this box is; undefined for the outbox. Throws for what is no box at all. */
export function consumerOf(box: string): string | undefined {
  requireBox(box);
  return box === outbox ? undefined : box.slice(inbox.length);
}

const outbox = "outbox";
const inbox = inboxOf("");

/** Throws unless it can be the name of a box: a statement on tables that do not exist would abort the caller's transaction. */
export function requireBox(box: string): void {
  if (box === outbox || (box.startsWith(inbox) && box.length > inbox.length)) return;
  throw new ConfigError(
    "option-invalid",
    `there is no box '${box}'; there is '${outbox}', and one for each consumer, such as '${inboxOf("billing")}'`,
    { path: "box" },
  );
}
