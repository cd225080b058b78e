import { defineEvent } from "postbox";
import { z } from "zod";

/** Prefix of every name that this demo uses on a broker. Set `DEMO_SHOP` to run two demos on one broker. */
export const shop = process.env.DEMO_SHOP ?? "shop";

export const OrderPlaced = defineEvent({
  type: `${shop}.orders.v1.OrderPlaced`,
  schema: z.object({ orderId: z.string(), total: z.number() }),
  key: (order) => order.orderId,
});

export const InvoiceIssued = defineEvent({
  type: `${shop}.billing.v1.InvoiceIssued`,
  schema: z.object({ orderId: z.string(), invoiceId: z.number() }),
  key: (invoice) => invoice.orderId,
});
