import type { Draft } from "../event/define-event.js";
import type { Lineage } from "../internal/lineage.js";
import type { Message } from "../message/message.js";

/**
 * What messages carry that this one led to: its `correlationid` (its id where it has none), and itself as their
 * `causationid`.
 */
export function lineageOf({ id, extensions }: Message): Lineage {
  return { correlationid: extensions.correlationid ?? id, causationid: id };
}

/** The draft, with where it comes from; what it says itself stays. */
export function descending(draft: Draft, lineage: Lineage): Draft {
  return { ...draft, options: { ...draft.options, extensions: { ...lineage, ...draft.options.extensions } } };
}
