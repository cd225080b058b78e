import { compared } from "../figure.js";
import type { Benchmark, Run } from "../part.js";
import { consume } from "./consume.js";
import { rememberPast } from "./fill.js";
import { newMessages } from "./messages.js";
import { warmRates } from "./rates.js";
import { routers } from "./routers.js";
import { type InboxSchema, inboxSchemaOf } from "./schema.js";

const name = "inbox.remembered";
const many = 5_000_000;
const few = 10_000;
const messages = 10_000;

/** An inbox that remembers five million messages, compared with one that remembers ten thousand. */
export const remembered: Benchmark = {
  names: [name],
  async measure(run) {
    const [large, small] = [await filled(run), await inboxSchemaOf(run, "inbox")];
    const rates = await warmRates(run, messages, {
      many: async (count) => {
        await large.empty({ keepMemory: true });
        return consume(large, routers.inbox, newMessages(count));
      },
      few: async (count) => {
        await small.empty();
        await rememberPast(small, few);
        return consume(small, routers.inbox, newMessages(count));
      },
    });
    return [compared(name, "messages/s", rates.many, "10,000 remembered", rates.few)];
  },
};

async function filled(run: Run): Promise<InboxSchema> {
  const schema = await inboxSchemaOf(run, "remembered");
  await rememberPast(schema, run.share(many));
  return schema;
}
