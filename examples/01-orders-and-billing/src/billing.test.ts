import { testMessaging } from "@postbox/testkit/app";
import { afterAll, beforeAll, expect, test } from "vitest";
import { billingService } from "./billing.js";
import { InvoiceIssued, OrderPlaced } from "./events.js";

let billing: Awaited<ReturnType<typeof billingService>>;
beforeAll(async () => {
  billing = await billingService("pglite:");
});
afterAll(() => billing.database.close());

const invoices = () => billing.database.run("select order_id, total from $own.invoices");

test("billing writes one invoice for an order, and says so, however often it is delivered", async () => {
  const app = testMessaging({ store: billing.database.store, handledElsewhere: [InvoiceIssued] });
  await billing.router.start(app.receiver);
  for (let times = 0; times < 2; times++) {
    await app.deliver(OrderPlaced, { orderId: "order-1", total: 7 }, { id: "message-1" });
  }
  await app.settled();
  expect(await invoices()).toEqual([{ order_id: "order-1", total: 7 }]);
  expect(await app.published(InvoiceIssued)).toEqual([{ orderId: "order-1", invoiceId: 1 }]);

  // The database accepts whole numbers only: the handler fails, and its transaction leaves neither an invoice nor a
  // message.
  await app.deliver(OrderPlaced, { orderId: "order-2", total: 7.5 });
  await expect(app.settled()).rejects.toThrow(/consumer billing failed to handle .*OrderPlaced .*integer/);
  expect(await invoices()).toHaveLength(1);
  expect(await app.published()).toHaveLength(1);
  await billing.router.stop();
  await app.close();
});
