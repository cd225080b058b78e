import type { EventDefinition, Registration } from "postbox";

/**
 * `router.on` for this event, as a function with the same types and errors.
 *
 * @example
 * ```ts
 * const onOrderPlaced = onEvent(OrderPlaced);
 * onOrderPlaced(createRouter("billing"), async (order) => console.log(order.orderId));
 * ```
 */
export function onEvent<E extends EventDefinition>(event: E): Registration<E> {
  const register = (router: { on(event: E, handler: unknown): unknown }, handler: unknown) => router.on(event, handler);
  return register as unknown as Registration<E>;
}
