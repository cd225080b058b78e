import type { Draft } from "../event/define-event.js";
import { type Lineage, withLineage } from "../internal/lineage.js";
import type { Middleware } from "../router/middleware.js";

/**
 * Everything published while a message is handled, returned or published directly, carries that message's
 * `correlationid` (its id where it has none) and names it as `causationid`. What a message sets itself stays. What the
 * handler leaves behind, such as a timer, publishes without.
 */
export function correlation(): Middleware<"correlation"> {
  return {
    name: "correlation",
    needs: [],
    adds: [],
    refuses: [],
    async run({ message }, next) {
      const lineage = { correlationid: message.extensions.correlationid ?? message.id, causationid: message.id };
      const outputs = await withLineage(lineage, next);
      // Outputs that are published further out leave this scope, so they take it along.
      return outputs.map((draft) => withExtensions(draft, lineage));
    },
  };
}

function withExtensions(draft: Draft, lineage: Lineage): Draft {
  return { ...draft, options: { ...draft.options, extensions: { ...lineage, ...draft.options.extensions } } };
}
