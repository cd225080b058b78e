import { compared } from "../figure.js";
import type { Benchmark } from "../part.js";
import { consume } from "./consume.js";
import { newMessages } from "./messages.js";
import { warmRates } from "./rates.js";
import { type RouterKind, routers } from "./routers.js";
import { inboxSchemaOf } from "./schema.js";

const name = "inbox.durable";
const messages = 10_000;

/** Messages that are stored, acked, handled and removed, compared with messages that are handled at once. */
export const durable: Benchmark = {
  names: [name],
  async measure(run) {
    const schema = await inboxSchemaOf(run, "inbox");
    const routed = (kind: RouterKind) => async (count: number) => {
      await schema.empty();
      return consume(schema, kind, newMessages(count));
    };
    const rates = await warmRates(run, messages, { durable: routed(routers.durable), inbox: routed(routers.inbox) });
    return [compared(name, "messages/s", rates.durable, "inbox(store)", rates.inbox)];
  },
};
