import { defineEvent, type StandardSchema } from "postbox";

/** What is published in the simulation. Its name is its key, if it has one, and who it is. */
interface Order {
  readonly name: string;
}

const schema: StandardSchema<Order> = {
  "~standard": { version: 1, vendor: "simulation", validate: (value) => ({ value: value as Order }) },
};

const events = <T extends string>(type: T) => ({
  keyed: defineEvent({ type, schema, key: ({ name }) => name.slice(0, name.indexOf(" ")) }),
  keyless: defineEvent({ type: `${type}.keyless`, schema }),
});

/** What producers publish, for `billing`. */
export const Placed = events("order.placed");
/** What billing publishes where there is a second hop, for `audit`. */
export const Handled = events("order.handled");

export const consumers = ["billing", "audit"] as const;
export type Consumer = (typeof consumers)[number];
