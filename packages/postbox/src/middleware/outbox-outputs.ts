import type { Outbox } from "../outbox/outbox.js";
import type { BaseContext, InTransaction, Outputs, WithOutputs } from "../router/context.js";
import type { Middleware } from "../router/middleware.js";

/** What the handler returns is published through the outbox, in the handler's transaction: all commits, or nothing. */
export function outboxOutputs<Tx>(outbox: Outbox<Tx>): Middleware<"outboxOutputs", InTransaction<Tx>, WithOutputs> {
  return {
    name: "outboxOutputs",
    needs: ["tx"],
    adds: ["outputs"],
    refuses: [],
    store: outbox.store,
    async run({ tx, runtime }: BaseContext & InTransaction<Tx>, next: (added: WithOutputs) => Promise<Outputs>) {
      const outputs = await next({ outputs: true });
      if (outputs.length > 0) {
        await outbox.in(tx).publishAll(outputs);
        if (runtime.failpoint) await runtime.failpoint("outputs.appended");
      }
      return [];
    },
  };
}
