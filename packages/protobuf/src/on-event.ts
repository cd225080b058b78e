import type { EventDefinition, Registration } from "postbox";

/** `router.on` for this event, as a function with the same types and errors. */
export function onEvent<E extends EventDefinition>(event: E): Registration<E> {
  const register = (router: { on(event: E, handler: unknown): unknown }, handler: unknown) => router.on(event, handler);
  return register as unknown as Registration<E>;
}
