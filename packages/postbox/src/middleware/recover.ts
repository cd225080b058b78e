import { PermanentError } from "../errors.js";
import type { BaseContext, Outputs, PublishesOutputs } from "../router/context.js";
import type { Middleware, None } from "../router/middleware.js";

// biome-ignore-start lint/suspicious/noConfusingVoidType: a callback that returns nothing is the common case.
/**
 * Replaces a failure inside by the result of `onError`: nothing (the message counts as handled), messages to publish,
 * if `publishOutputs` stands outside of it, or another error. Must stand outside of a transaction, which rolls back
 * what failed inside.
 *
 * @example
 * ```ts
 * const router = createRouter("mail")
 *   .use(recover((error, { message }) => console.error(`${message.id} is ignored`, error)))
 *   .on(OrderPlaced, async (order) => console.log(order.orderId));
 * ```
 */
export function recover(
  onError: (error: unknown, context: BaseContext) => void | Promise<void>,
): Middleware<"recover", None, None, "tx">;
export function recover(
  onError: (error: unknown, context: BaseContext) => Outputs | void | Promise<Outputs | void>,
): Middleware<"recover", Pick<PublishesOutputs, "published">, None, "tx">;
export function recover(
  onError: (error: unknown, context: BaseContext) => Outputs | void | Promise<Outputs | void>,
): Middleware<"recover", None, None, "tx"> {
  // biome-ignore-end lint/suspicious/noConfusingVoidType: see above.
  return {
    name: "recover",
    needs: [],
    adds: [],
    refuses: ["tx"],
    async run(context, next) {
      try {
        return await next();
      } catch (cause) {
        const outputs = (await onError(cause, context)) ?? [];
        if (outputs.length === 0 || "outputs" in context) return outputs;
        throw new PermanentError(
          "recover() returned messages that are not published: .use(publishOutputs(publisher)) before it",
          { code: "outputs-unpublished", cause },
        );
      }
    },
  };
}
