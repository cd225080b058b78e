import { defineEvent, type StandardSchema } from "postbox";

/** The data of a simulated message. Its name consists of its key, if it has one, and its number. */
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

/** The event that producers publish for `billing`. */
export const Placed = events("order.placed");
/** The event that billing publishes for `audit`, in plans with a second hop. */
export const Handled = events("order.handled");

export const consumers = ["billing", "audit"] as const;
export type Consumer = (typeof consumers)[number];
