import { compared } from "../figure.js";
import type { Benchmark } from "../part.js";
import { consumeByHand, sameStatements } from "./by-hand.js";
import { consume } from "./consume.js";
import { newMessages } from "./messages.js";
import { warmRates } from "./rates.js";
import { routers } from "./routers.js";
import { inboxSchemaOf } from "./schema.js";

const name = "inbox.full.vs-hand";
const messages = 10_000;

/** An inbox, a business insert and a message through the outbox, compared with the same statements by hand. */
export const full: Benchmark = {
  names: [name],
  async measure(run) {
    const schema = await inboxSchemaOf(run, "inbox");
    const work = await sameStatements(schema, routers.full);
    const rates = await warmRates(run, messages, {
      ours: async (count) => {
        await schema.empty();
        return consume(schema, routers.full, newMessages(count));
      },
      hand: async (count) => {
        await schema.empty();
        return consumeByHand(schema, newMessages(count), work);
      },
    });
    return [compared(name, "messages/s", rates.ours, "the same statements by hand", rates.hand)];
  },
};
