import type { ClientBase } from "pg";
import type { Message, Store, Telemetry } from "postbox";
import { businessRows } from "../business.js";
import { within } from "../time-limit.js";
import { createFeed } from "./feed.js";
import type { RouterKind } from "./routers.js";
import type { InboxSchema } from "./schema.js";

export interface ConsumeOptions {
  /** The attempt number of every delivery. Defaults to 1. */
  readonly attempt?: number;
  /** How many messages must reach the handler. Defaults to all. */
  readonly handled?: number;
  /** Defaults to the store of the schema. */
  readonly store?: Store<ClientBase>;
}

const limitMs = 60_000;
const failures: ReadonlySet<string> = new Set(["delivery.retried", "delivery.parked", "router.failed", "relay.failed"]);

/**
 * Returns the messages per second that a router handles, from its start to the last ack. Throws if a delivery failed,
 * if a message was not handled exactly once, or if one is left in a box.
 */
export async function consume(
  schema: InboxSchema,
  kind: RouterKind,
  messages: readonly Message[],
  { attempt = 1, handled = messages.length, store = schema.store }: ConsumeOptions = {},
): Promise<number> {
  let acks = 0;
  let telemetry: Telemetry = () => {};
  const reached = new Promise<void>((resolve, reject) => {
    telemetry = (event) => {
      if (event.name === "delivery.acked") {
        if (++acks === messages.length) resolve();
      } else if (failures.has(event.name)) reject("error" in event ? event.error : new Error(event.name));
    };
  });
  const feed = createFeed(messages, attempt);
  const router = kind(store, telemetry);
  const before = await businessRows(schema.pool);
  const stop = new AbortController();
  const started = performance.now();
  const running = router.run(feed, stop.signal);
  let seconds: number;
  try {
    const missing = () => `${acks} of ${messages.length} acks`;
    await within(limitMs, missing, Promise.race([reached, running]));
    seconds = (performance.now() - started) / 1000;
  } finally {
    stop.abort();
    await running;
  }
  const [done, left] = [(await businessRows(schema.pool)) - before, await schema.left()];
  if (feed.acked !== messages.length || done !== handled || left > 0) {
    throw new Error(`of ${messages.length} messages ${feed.acked} were acked, ${done} handled, and ${left} are left`);
  }
  return messages.length / seconds;
}
