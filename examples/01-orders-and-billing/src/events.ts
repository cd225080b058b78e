import { defineEvent } from "postbox";
import { z } from "zod";

/** Everything that this demo has on a broker begins with it: two of them that share one are two shops. */
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
