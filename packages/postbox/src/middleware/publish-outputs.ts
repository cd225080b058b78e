import type { Publisher } from "../publisher/publisher.js";
import type { BaseContext, ForwardAck, Outputs, PublishesOutputs } from "../router/context.js";
import type { Middleware, None } from "../router/middleware.js";
import { descending, lineageOf } from "./lineage.js";

/**
 * What the handler returns goes straight to the broker, after everything inside has committed. When publishing fails,
 * the message counts as failed and is handled again, so handlers behind it must bear being repeated: this is why the
 * inbox does not fit inside. With `ack: "forward"` the next message is handled while the broker confirms. Outputs carry
 * the same `correlationid` and `causationid` as those of `outboxOutputs`.
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
