import type { BaseContext, Outputs } from "../router/context.js";
import type { Middleware, None } from "../router/middleware.js";

/**
 * Turns a failure inside into whatever `onError` makes of it: messages to publish, nothing (the message counts as
 * handled), or another error by throwing. Must stand outside of a transaction: what failed inside one is rolled back.
 */
export function recover(
  // biome-ignore lint/suspicious/noConfusingVoidType: an async callback that returns nothing is the common case.
  onError: (error: unknown, context: BaseContext) => Outputs | void | Promise<Outputs | void>,
): Middleware<"recover", None, None, "tx"> {
  return {
    name: "recover",
    needs: [],
    adds: [],
    refuses: ["tx"],
    async run(context, next) {
      try {
        return await next();
      } catch (error) {
        return (await onError(error, context)) ?? [];
      }
    },
  };
}
