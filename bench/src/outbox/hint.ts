import { createOutbox } from "postbox";
import { postgresNotifier } from "postbox/postgres";
import { businessInsert } from "../business.js";
import { compared } from "../figure.js";
import type { Benchmark } from "../part.js";
import { alternate } from "../rounds.js";
import { boxOf } from "./boxes.js";
import { Placed, randomOrder } from "./placed.js";
import { transactionRate } from "./transaction-rate.js";

const name = "outbox.hint.vs-off";
const forMs = 3_000;

/**
 * The cost of notifications for the writers. No relay listens: a misplaced NOTIFY costs the writers as much without
 * one.
 */
export const hint: Benchmark = {
  names: [name],
  async measure(run) {
    const box = await boxOf(run, "ours");
    const rate = (on: boolean) => {
      const notifier = on && postgresNotifier({ pool: box.pool, schema: box.schema });
      const outbox = createOutbox(box.store, { source: "/bench", notifier });
      return transactionRate(box, run.share(forMs), async (client) => {
        await client.query("BEGIN");
        await businessInsert(client);
        await outbox.in(client).publish(Placed, randomOrder());
        await client.query("COMMIT");
      });
    };
    const rates = await alternate(run.rounds, { on: () => rate(true), off: () => rate(false) });
    return [compared(name, "tx/s", rates.on, "no notifier", rates.off)];
  },
};
