import type { RelayOptions } from "postbox";
import { absolute } from "../figure.js";
import { boxOf } from "../outbox/boxes.js";
import { fillAndDrain } from "../outbox/drain-box.js";
import type { Benchmark } from "../part.js";
import { alternate } from "../rounds.js";

const settings: Readonly<Record<string, RelayOptions & { readonly rows: number }>> = {
  defaults: { rows: 50_000, batchSize: 500 },
  "batch-50": { rows: 50_000, batchSize: 50 },
  "batch-1000": { rows: 50_000, batchSize: 1000 },
  "in-flight-100": { rows: 50_000, batchSize: 500, maxInFlight: 100 },
  "in-flight-5000": { rows: 50_000, batchSize: 500, maxInFlight: 5000 },
  "order-none": { rows: 50_000, batchSize: 500, order: "none" },
  "order-total": { rows: 5_000, batchSize: 500, order: "total" },
  keep: { rows: 50_000, batchSize: 500, onSent: "keep" },
};

/** Rows per second that a relay takes to a sender that does nothing, by its options. */
export const draining: Benchmark = {
  names: ["tuning.drain"],
  async measure(run) {
    const box = await boxOf(run, "ours");
    const sides = Object.entries(settings).map(([name, { rows, ...options }]) => {
      const count = run.share(rows);
      return [name, async () => count / (await fillAndDrain(box, count, options)).seconds] as const;
    });
    const rates = await alternate(run.rounds, Object.fromEntries(sides));
    return Object.entries(rates).map(([name, values]) => absolute(`tuning.drain.${name}`, "rows/s", values));
  },
};
