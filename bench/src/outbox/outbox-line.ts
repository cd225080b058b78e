import { createOutbox, createRelay } from "postbox";
import { postgresNotifier } from "postbox/postgres";
import type { Line } from "../latency.js";
import type { Box } from "./box.js";
import { countingSender } from "./counting-sender.js";
import { Placed, randomOrder } from "./placed.js";
import { knownRelayOptions } from "./relay-options.js";

/** The path from an outbox to the sender of a relay in the same process. */
export async function outboxLine(
  box: Box,
  called: () => void,
  /** With `among`, the dead rows of an earlier drain stay in the table. */
  options: { readonly notifies?: boolean; readonly pollIntervalMs?: number; readonly among?: "dead rows" },
): Promise<Line> {
  if (options.among === undefined) await box.empty();
  const { notifies = false, pollIntervalMs } = options;
  const notifier = notifies && postgresNotifier({ pool: box.pool, schema: box.schema });
  const outbox = createOutbox(box.store, { source: "/bench", notifier });
  const sender = countingSender({ expected: Number.POSITIVE_INFINITY, onSend: called });
  const wished = { order: "key", notifier, ...(pollIntervalMs && { pollIntervalMs }) };
  const relay = createRelay(box.store, sender, knownRelayOptions(wished));
  relay.start();
  return {
    async send() {
      await box.store.transaction((tx) => outbox.in(tx).publish(Placed, randomOrder()));
    },
    stop: () => relay.stop(),
  };
}
