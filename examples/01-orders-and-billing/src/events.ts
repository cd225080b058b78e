import { defineEvent } from "postbox";
import { z } from "zod";

export const OrderPlaced = defineEvent({
  type: "shop.orders.v1.OrderPlaced",
  schema: z.object({ orderId: z.string(), total: z.number() }),
  key: (order) => order.orderId,
});

export const InvoiceIssued = defineEvent({
  type: "shop.billing.v1.InvoiceIssued",
  schema: z.object({ orderId: z.string(), invoiceId: z.number() }),
  key: (invoice) => invoice.orderId,
});
