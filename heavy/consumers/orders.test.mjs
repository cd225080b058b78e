import { expect, test } from "@jest/globals";
import { createOutbox } from "postbox";
import { memoryStore } from "postbox/memory";

test("publishes in the transaction", async () => {
  const store = memoryStore();
  const outbox = createOutbox(store, { source: "/orders" });
  await store.transaction((tx) => outbox.in(tx).send({ id: "1", type: "shop.orders.v1.OrderPlaced" }));
  const { messages } = await store.admin.list();
  expect(messages.map(({ id }) => id)).toEqual(["1"]);
});
