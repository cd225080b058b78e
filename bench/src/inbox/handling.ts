import { compared } from "../figure.js";
import type { Benchmark } from "../part.js";
import { consumeByHand, type HandWork, nothingRemembered, plainInsert, sameStatements } from "./by-hand.js";
import { consume } from "./consume.js";
import { newMessages } from "./messages.js";
import { warmRates } from "./rates.js";
import { type RouterKind, routers } from "./routers.js";
import { inboxSchemaOf } from "./schema.js";

const messages = 10_000;
const unit = "messages/s";

/**
 * An inbox and a business insert per message, compared with the same by hand and with no inbox. The comparison with no
 * inbox is repeated by hand: it shows the cost of remembering, whatever the code.
 */
export const handling: Benchmark = {
  names: ["inbox.vs-hand", "inbox.vs-without", "inbox.vs-without.by-hand", "inbox.vs-plain"],
  async measure(run) {
    const schema = await inboxSchemaOf(run, "inbox");
    const work = await sameStatements(schema, routers.inbox);
    const routed = (kind: RouterKind) => async (count: number) => {
      await schema.empty();
      return consume(schema, kind, newMessages(count));
    };
    const byHand = (hand: HandWork) => async (count: number) => {
      await schema.empty();
      return consumeByHand(schema, newMessages(count), hand);
    };
    const rates = await warmRates(run, messages, {
      ours: routed(routers.inbox),
      hand: byHand(work),
      without: routed(routers.bare),
      plain: byHand(plainInsert(schema)),
      nothing: byHand(nothingRemembered),
    });
    return [
      compared("inbox.vs-hand", unit, rates.ours, "the same statements by hand", rates.hand),
      compared("inbox.vs-without", unit, rates.ours, "no inbox", rates.without),
      compared("inbox.vs-without.by-hand", unit, rates.plain, "no inbox by hand", rates.nothing),
      compared("inbox.vs-plain", unit, rates.ours, "a plain INSERT by hand", rates.plain),
    ];
  },
};
