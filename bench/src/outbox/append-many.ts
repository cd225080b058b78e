import { createOutbox } from "postbox";
import { compared } from "../figure.js";
import type { Benchmark } from "../part.js";
import { alternate } from "../rounds.js";
import type { Box } from "./box.js";
import { boxOf } from "./boxes.js";
import { appendManyByHand } from "./by-hand.js";
import { Placed, randomOrder } from "./placed.js";

const name = "outbox.append-many.vs-bare";
const calls = 60;
const messages = 1_000;
const warmUpCalls = 5;

/** A thousand messages in one call and one transaction, compared with one bare INSERT of a thousand rows. */
export const appendMany: Benchmark = {
  names: [name],
  async measure(run) {
    const box = await boxOf(run, "ours");
    const outbox = createOutbox(box.store, { source: "/bench" });
    const count = run.share(calls);
    const ours = async (times: number) => {
      for (let call = 0; call < times; call++) {
        const drafts = Array.from({ length: messages }, () => Placed.message(randomOrder()));
        await box.store.transaction((tx) => outbox.in(tx).publishAll(drafts));
      }
    };
    const bare = async (times: number) => {
      for (let call = 0; call < times; call++) {
        await box.store.transaction((tx) => appendManyByHand(tx, box, messages));
      }
    };
    await ours(warmUpCalls);
    await bare(warmUpCalls);
    const rates = await alternate(run.rounds, {
      ours: () => rateOf(box, count, ours),
      bare: () => rateOf(box, count, bare),
    });
    return [compared(name, "rows/s", rates.ours, "one INSERT by hand", rates.bare)];
  },
};

async function rateOf(box: Box, count: number, append: (times: number) => Promise<void>): Promise<number> {
  await box.empty();
  await box.pool.query("CHECKPOINT");
  const started = performance.now();
  await append(count);
  return (count * messages) / ((performance.now() - started) / 1000);
}
