import type { BaseContext, Outputs, WithoutOutputs } from "../router/context.js";
import type { Middleware, None } from "../router/middleware.js";

const noOutbox =
  "the inbox is on and the outbox is off, so a crash after the commit would lose them: turn the outbox on";
export type NoOutbox = typeof noOutbox;

/** Says why a handler behind an inbox cannot return messages while there is no outbox. */
export function withoutOutputs(): Middleware<"withoutOutputs", None, WithoutOutputs<NoOutbox>> {
  return {
    name: "withoutOutputs",
    needs: [],
    adds: ["unpublished"],
    refuses: [],
    run: (_: BaseContext, next: (added: WithoutOutputs<NoOutbox>) => Promise<Outputs>) =>
      next({ unpublished: noOutbox }),
  };
}
