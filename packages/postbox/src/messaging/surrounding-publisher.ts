import { PostboxError } from "../errors.js";
import type { Outbox } from "../outbox/outbox.js";
import type { Publisher } from "../publisher/publisher.js";

/** A publisher into the transaction of the outbox's store that surrounds whoever calls it. */
export function surroundingPublisher<Tx>(outbox: Outbox<Tx>): Publisher {
  const { store } = outbox;
  const here = (): Publisher => {
    const tx = store.current();
    if (tx !== undefined) return outbox.in(tx);
    throw new PostboxError(
      "transaction-missing",
      `the outbox is on, and no transaction of ${store.name} is open here to publish in; ` +
        "call it inside store.transaction(...) or in a handler, or publish with messaging.in(tx)",
    );
  };
  return {
    publish: async (event, data, options) => here().publish(event, data, options),
    publishAll: async (drafts) => here().publishAll(drafts),
    send: async (message) => here().send(message),
  };
}
