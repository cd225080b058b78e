import type { Message, Store } from "postbox";
import type { Arrival, Remembered, RememberOptions } from "postbox/store";

/** As long as an inbox remembers by default, and longer than any test waits. */
export const remembering: RememberOptions = { retentionMs: 30 * 24 * 3_600_000, lockTimeoutMs: 4_000 };

/** A message as it came to a consumer. */
export function arrivalOf(consumer: string, message: Message, more: Partial<Arrival> = {}): Arrival {
  return { consumer, message, id: message.id, ...more };
}

/** `store.inbox.remember` with what is usual. */
export function remember<Tx>(store: Store<Tx>, tx: Tx, consumer: string, message: Message): Promise<Remembered> {
  return store.inbox.remember(tx, arrivalOf(consumer, message), remembering);
}
