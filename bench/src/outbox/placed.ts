import { type DataIn, defineEvent, type StandardSchema } from "postbox";

/** Accepts everything: the cost of a schema library is not measured. */
const schema: StandardSchema<{ orderId: string; note: string }> = {
  "~standard": { version: 1, vendor: "bench", validate: (value) => ({ value: value as Order }) },
};

interface Order {
  orderId: string;
  note: string;
}

export const Placed = defineEvent({ type: "bench.orders.v1.Placed", schema, key: (order) => order.orderId });

const keys = 1000;
const payloadBytes = 256;

/** An order of 256 bytes of JSON; its key is one of 1,000, drawn at random. */
export function randomOrder(): DataIn<typeof Placed> {
  const orderId = `order-${String(Math.floor(Math.random() * keys)).padStart(4, "0")}`;
  return { orderId, note };
}

const note = "n".repeat(payloadBytes - JSON.stringify({ orderId: "order-0000", note: "" }).length);
