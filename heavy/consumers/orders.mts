import { createOutbox, createRelay, defineEvent } from "postbox";
import { memoryBroker, memoryStore } from "postbox/memory";

type Order = { orderId: string };
/** A Standard Schema that accepts any value, without a library. */
const anything: {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => { readonly value: Order };
    readonly types?: { readonly input: Order; readonly output: Order };
  };
} = { "~standard": { version: 1, vendor: "orders", validate: (value) => ({ value: value as Order }) } };
const OrderPlaced = defineEvent({
  type: "shop.orders.v1.OrderPlaced",
  schema: anything,
  key: ({ orderId }: Order) => orderId,
});

export async function placed(orderId: string): Promise<string[]> {
  const store = memoryStore();
  const outbox = createOutbox(store, { source: "/orders" });
  await store.transaction((tx) => outbox.in(tx).publish(OrderPlaced, { orderId }));
  const relay = createRelay(store, memoryBroker().sender());
  await relay.stop();
  const { messages } = await store.admin.list();
  return messages.map(({ key = "" }) => key);
}
