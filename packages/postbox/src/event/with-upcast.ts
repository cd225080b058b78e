import { ConfigError } from "../errors.js";
import type { DataIn, DataOut, EventDefinition, OlderTypesOf } from "./define-event.js";
import { olderTypes, type Upcaster } from "./upcast.js";

/**
 * The same event with `upcast`, for a definition that you cannot change: generated code, or a shared package. Its
 * handler takes the older types in addition to those that it took before. Publishing either event is the same.
 *
 * @example
 * ```ts
 * const Placed = withUpcast(OrderPlaced, [
 *   upcastFrom("shop.orders.v0.OrderPlaced", () => ({ orderId: "unknown", total: 0 })),
 * ]);
 * ```
 */
export function withUpcast<E extends EventDefinition, const Older extends string>(
  event: E,
  upcast: readonly Upcaster<Older, DataIn<E>>[],
): EventDefinition<E["type"], DataIn<E>, DataOut<E>, Older | OlderTypesOf<E>> {
  if (typeof event?.validate !== "function" || !Array.isArray(upcast)) {
    throw new ConfigError(
      "event-invalid",
      "withUpcast(event, upcast) takes an event, and an array of what upcastFrom returns",
    );
  }
  const added = olderTypes(event.type, upcast, event.validate);
  const before = event.upcasts.filter(({ type }) => !added.some((each) => each.type === type));
  return Object.freeze({ ...event, upcasts: Object.freeze([...added, ...before]) }) as never;
}
