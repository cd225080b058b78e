import type { PoolClient } from "pg";
import { createOutbox, type OutboxOptions } from "postbox";
import { postgresNotifier } from "postbox/postgres";
import { businessInsert } from "../business.js";
import { absolute } from "../figure.js";
import { boxOf } from "../outbox/boxes.js";
import { Placed, randomOrder } from "../outbox/placed.js";
import { transactionRate } from "../outbox/transaction-rate.js";
import type { Benchmark } from "../part.js";
import { alternate } from "../rounds.js";

const forMs = 2_000;
const ten = Array.from({ length: 10 });

/** Transactions per second on 10 connections, by what they publish and how. */
export const appending: Benchmark = {
  names: ["tuning.append"],
  async measure(run) {
    const box = await boxOf(run, "ours");
    const outboxWith = (options: Partial<OutboxOptions> = {}) =>
      createOutbox(box.store, { source: "/bench", ...options });
    const plain = outboxWith();
    const [hinting, strict] = [
      outboxWith({ notifier: postgresNotifier({ pool: box.pool, schema: box.schema }) }),
      outboxWith({ strictKeyOrder: true }),
    ];
    const publishing: Readonly<Record<string, (tx: PoolClient) => Promise<unknown>>> = {
      nothing: async () => {},
      one: (tx) => plain.in(tx).publish(Placed, randomOrder()),
      "one-hint": (tx) => hinting.in(tx).publish(Placed, randomOrder()),
      "one-strict": (tx) => strict.in(tx).publish(Placed, randomOrder()),
      "one-strict-one-key": (tx) => strict.in(tx).publish(Placed, randomOrder(), { key: "the only one" }),
      "one-scheduled": (tx) => plain.in(tx).publish(Placed, randomOrder(), { deliverAt: "2999-01-01T00:00:00Z" }),
      "ten-publish": async (tx) => {
        for (const _ of ten) await plain.in(tx).publish(Placed, randomOrder());
      },
      "ten-publish-all": (tx) => plain.in(tx).publishAll(ten.map(() => Placed.message(randomOrder()))),
      "ten-collecting": (tx) =>
        plain.collecting(tx, async (collected) => {
          for (const _ of ten) await collected.publish(Placed, randomOrder());
        }),
    };
    const sides = Object.entries(publishing).map(
      ([name, publish]) =>
        [
          name,
          () =>
            transactionRate(box, run.share(forMs), async (client) => {
              await client.query("BEGIN");
              await businessInsert(client);
              await publish(client);
              await client.query("COMMIT");
            }),
        ] as const,
    );
    const rates = await alternate(run.rounds, Object.fromEntries(sides));
    return Object.entries(rates).map(([name, values]) => absolute(`tuning.append.${name}`, "tx/s", values));
  },
};
