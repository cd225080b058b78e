import { compared } from "../figure.js";
import type { Benchmark } from "../part.js";
import { consume } from "./consume.js";
import { rememberAll } from "./fill.js";
import { newMessages } from "./messages.js";
import { warmRates } from "./rates.js";
import { routers } from "./routers.js";
import { inboxSchemaOf } from "./schema.js";

const messages = 10_000;

/**
 * Messages that were all handled before, compared with new ones. They are published twice, or redelivered and marked so
 * by the broker; the inbox looks up redelivered messages in batches.
 */
export const duplicates: Benchmark = {
  names: ["inbox.duplicates", "inbox.duplicates.redelivered"],
  async measure(run) {
    const schema = await inboxSchemaOf(run, "inbox");
    const known = (attempt: number) => async (count: number) => {
      const again = newMessages(count);
      await schema.empty();
      await rememberAll(schema, again);
      return consume(schema, routers.inbox, again, { attempt, handled: 0 });
    };
    const rates = await warmRates(run, messages, {
      duplicates: known(1),
      redelivered: known(2),
      new: async (count) => {
        await schema.empty();
        return consume(schema, routers.inbox, newMessages(count));
      },
    });
    return [
      compared("inbox.duplicates", "messages/s", rates.duplicates, "new ones", rates.new),
      compared("inbox.duplicates.redelivered", "messages/s", rates.redelivered, "new ones", rates.new),
    ];
  },
};
