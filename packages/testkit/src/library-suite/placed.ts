import { defineEvent, type StandardSchema } from "postbox";

interface Order {
  readonly order: string;
}
const schema: StandardSchema<Order> = {
  "~standard": { version: 1, vendor: "testkit", validate: (value) => ({ value: value as Order }) },
};

export const Placed = defineEvent({ type: "shop.Placed", schema });
export const Invoiced = defineEvent({ type: "shop.Invoiced", schema });
