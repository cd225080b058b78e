import type { Publisher } from "../publisher/publisher.js";
import type { BaseContext, ForwardAck, Outputs, PublishesOutputs } from "../router/context.js";
import type { Middleware, None } from "../router/middleware.js";
import { descending, lineageOf } from "./lineage.js";

/**
 * Publishes the handler's outputs straight to the broker, after everything inside has committed. If publishing fails,
 * the message has failed and is handled again, so its handler must be idempotent: this is why no inbox fits inside.
 * With `ack: "forward"`, the next message is handled while the broker confirms. Outputs carry `correlationid` and
 * `causationid`, as with `outboxOutputs`.
 *
 * @example
 * ```ts
 * const router = createRouter("mail")
 *   .use(publishOutputs(createPublisher(sender, { source: "/mail" })))
 *   .on(OrderPlaced, async (order) => [OrderPlaced.message(order)]);
 * ```
 */
export function publishOutputs(publisher: Publisher): Middleware<"publishOutputs", None, PublishesOutputs, "tx"> {
  return {
    name: "publishOutputs",
    needs: [],
    adds: ["outputs", "published"],
    refuses: ["tx"],
    async run(context: BaseContext & Partial<ForwardAck>, next: (added: PublishesOutputs) => Promise<Outputs>) {
      const outputs = await next({ outputs: true, published: true });
      if (outputs.length > 0) {
        const lineage = lineageOf(context.message);
        const published = publisher.publishAll(outputs.map((draft) => descending(draft, lineage)));
        if (context.forward === undefined) await published;
        else context.forward(published);
      }
      return [];
    },
  };
}
