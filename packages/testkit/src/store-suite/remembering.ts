import type { Message, Store } from "postbox";
import type { Arrival, Remembered, RememberOptions } from "postbox/store";

/** The default retention of an inbox, longer than any test waits. */
export const remembering: RememberOptions = { retentionMs: 30 * 24 * 3_600_000, lockTimeoutMs: 4_000 };

/**
 * A message as a consumer received it.
 *
 * @example
 * ```ts
 * const arrival = arrivalOf("billing", testMessage("1"));
 * ```
 */
export function arrivalOf(consumer: string, message: Message, more: Partial<Arrival> = {}): Arrival {
  return { consumer, message, id: message.id, ...more };
}

/**
 * Calls `store.inbox.remember` with the usual options.
 *
 * @example
 * ```ts
 * await store.transaction((tx) => remember(store, tx, "billing", testMessage("1")));
 * ```
 */
export function remember<Tx>(store: Store<Tx>, tx: Tx, consumer: string, message: Message): Promise<Remembered> {
  return store.inbox.remember(tx, arrivalOf(consumer, message), remembering);
}
