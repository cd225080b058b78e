import { withLineage } from "../internal/lineage.js";
import type { Middleware } from "../router/middleware.js";
import { descending, lineageOf } from "./lineage.js";

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
      const lineage = lineageOf(message);
      const outputs = await withLineage(lineage, next);
      // Outputs that are published further out leave this scope, so they take it along.
      return outputs.map((draft) => descending(draft, lineage));
    },
  };
}
