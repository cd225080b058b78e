import { createOutbox, createRelay, type OutboxOptions } from "postbox";
import type { Line } from "../latency.js";
import type { Box } from "./box.js";
import { countingSender } from "./counting-sender.js";
import { Placed, randomOrder } from "./placed.js";
import { knownRelayOptions } from "./relay-options.js";

/** From an outbox to the sender of a relay in the same process. */
export async function outboxLine(
  box: Box,
  called: () => void,
  /** `among`: dead rows stay where they are. */
  options: { readonly hint?: boolean; readonly pollIntervalMs?: number; readonly among?: "dead rows" },
): Promise<Line> {
  if (options.among === undefined) await box.empty();
  const { hint, pollIntervalMs } = options;
  const outbox = createOutbox(box.store, { source: "/bench", ...(hint && { hint }) } as OutboxOptions);
  const sender = countingSender({ expected: Number.POSITIVE_INFINITY, onSend: called });
  const wished = { order: "key", ...(hint && { hint }), ...(pollIntervalMs && { pollIntervalMs }) };
  const relay = createRelay(box.store, sender, knownRelayOptions(wished));
  relay.start();
  return {
    async send() {
      await box.store.transaction((tx) => outbox.in(tx).publish(Placed, randomOrder()));
    },
    stop: () => relay.stop(),
  };
}
