import { PostboxError } from "../errors.js";
import type { Runtime } from "../internal/runtime.js";
import { withTimeout } from "../internal/with-timeout.js";
import type { Inbox } from "../store.js";

/** The inbox's verbs that use a transaction of their own instead of the handler's. */
export type Keeping = Pick<Inbox<never>, "keep" | "setAside">;

/**
 * Gives up each call after `limitMs`, or when its signal is aborted. Without a limit, a connection that was cut
 * silently would block a consumer for ever. A call that was given up may still take effect: then the store knows the
 * message when it is delivered again.
 */
export function boundedInbox(inbox: Keeping, limitMs: number, runtime: Runtime): Keeping {
  const late = () =>
    new PostboxError("store-failed", `the store gave no answer within ${limitMs} ms; it is tried again`);
  return {
    keep: (arrivals, options, outer) =>
      withTimeout(runtime, limitMs, late, (signal) => inbox.keep(arrivals, options, signal), outer),
    setAside: (arrival, aside, options, outer) =>
      withTimeout(runtime, limitMs, late, (signal) => inbox.setAside(arrival, aside, options, signal), outer),
  };
}
