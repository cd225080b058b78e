import { withLineage } from "../internal/lineage.js";
import type { Middleware } from "../router/middleware.js";
import { descending, lineageOf } from "./lineage.js";

/**
 * Gives every message that is published while another one is handled, by return or directly, the handled message's
 * `correlationid` (its id, if it has none) and its id as `causationid`. What a message sets itself stays. Code that
 * still runs after the handler, such as a timer, publishes without them.
 *
 * @example
 * ```ts
 * const router = createRouter("billing")
 *   .use(correlation()) // messages that the handler publishes name the one that it handles
 *   .on(OrderPlaced, async (order) => console.log(order.orderId));
 * ```
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
      // Outputs are published outside of this scope, so they carry it along.
      return outputs.map((draft) => descending(draft, lineage));
    },
  };
}
