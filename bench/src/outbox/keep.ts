import type { RelayOptions } from "postbox";
import { compared, missing } from "../figure.js";
import type { Benchmark } from "../part.js";
import { alternate } from "../rounds.js";
import { boxOf } from "./boxes.js";
import { fillAndDrain } from "./drain-box.js";
import { relayKnows } from "./relay-options.js";

const name = "outbox.keep.vs-delete";
const rows = 50_000;

/** A relay that keeps sent messages, compared with one that deletes them. */
export const keep: Benchmark = {
  names: [name],
  async measure(run) {
    if (!relayKnows({ onSent: "keep" })) return [missing(name, "not yet: there is no onSent 'keep'")];
    const count = run.share(rows);
    const box = await boxOf(run, "ours");
    const rate = async (onSent: string) =>
      count / (await fillAndDrain(box, count, { onSent } as unknown as RelayOptions)).seconds;
    const rates = await alternate(run.rounds, { keep: () => rate("keep"), delete: () => rate("delete") });
    return [compared(name, "rows/s", rates.keep, "onSent delete", rates.delete)];
  },
};
