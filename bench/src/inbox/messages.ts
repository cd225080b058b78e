import { randomUUID } from "node:crypto";
import type { Message } from "postbox";
import { createMessage } from "postbox/store";
import { Placed, randomOrder } from "../outbox/placed.js";

/** Creates messages as an outbox would: with the current time and ids that begin with it. Call it before measuring. */
export function newMessages(count: number): readonly Message[] {
  return Array.from({ length: count }, () => {
    const order = randomOrder();
    const now = new Date();
    return createMessage({
      id: idAt(now.getTime()),
      source: "/bench",
      type: Placed.type,
      time: now,
      key: order.orderId,
      data: Buffer.from(JSON.stringify(order)),
    });
  });
}

/** A UUID of version 7. */
function idAt(ms: number): string {
  const time = ms.toString(16).padStart(12, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`;
}
