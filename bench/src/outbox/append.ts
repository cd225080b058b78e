import { createOutbox } from "postbox";
import { businessInsert } from "../business.js";
import { compared } from "../figure.js";
import type { Benchmark } from "../part.js";
import { alternate } from "../rounds.js";
import { boxOf } from "./boxes.js";
import { appendByHand } from "./by-hand.js";
import { Placed, randomOrder } from "./placed.js";
import { transactionRate } from "./transaction-rate.js";

const name = "outbox.append.vs-hand";
const forMs = 3_000;

/** A business insert and a published event in one transaction, compared with writing the row by hand. */
export const append: Benchmark = {
  names: [name],
  async measure(run) {
    const box = await boxOf(run, "ours");
    const outbox = createOutbox(box.store, { source: "/bench" });
    const rates = await alternate(run.rounds, {
      ours: () =>
        transactionRate(box, run.share(forMs), async (client) => {
          await client.query("BEGIN");
          await businessInsert(client);
          await outbox.in(client).publish(Placed, randomOrder());
          await client.query("COMMIT");
        }),
      hand: () =>
        transactionRate(box, run.share(forMs), async (client) => {
          await client.query("BEGIN");
          await businessInsert(client);
          await appendByHand(client, box);
          await client.query("COMMIT");
        }),
    });
    return [compared(name, "tx/s", rates.ours, "the same row by hand", rates.hand)];
  },
};
