import type { Draft } from "../event/define-event.js";
import type { Lineage } from "../internal/lineage.js";
import type { Message } from "../message/message.js";

/**
 * The extensions of messages that this one leads to: its `correlationid` (its id, if it has none), and its id as
 * `causationid`.
 */
export function lineageOf({ id, extensions }: Message): Lineage {
  return { correlationid: extensions.correlationid ?? id, causationid: id };
}

/** The draft with the lineage; what the draft sets itself stays. */
export function descending(draft: Draft, lineage: Lineage): Draft {
  return { ...draft, options: { ...draft.options, extensions: { ...lineage, ...draft.options.extensions } } };
}
