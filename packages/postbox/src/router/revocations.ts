import { setMaxListeners } from "node:events";
import { PostboxError } from "../errors.js";
import { reasonOf } from "../internal/reason-of.js";
import { whenAborted } from "../internal/when-aborted.js";

/**
 * Tracks, for one run of a router, the signals by which a broker revokes deliveries. Each stream or connection has one.
 */
export interface Revocations {
  /** Remembers a delivery's signal. Cheap for every delivery but the first with that signal. */
  watch(signal: AbortSignal): void;
  /** The signal for a handler of such a delivery: aborted when the broker revokes it, or when the router gives up. */
  handlerSignal(signal: AbortSignal): AbortSignal;
  /** Forgets all signals, so that those which outlive the run do not keep it in memory. */
  end(): void;
}

interface Watched {
  /** Made for the first handler that needs it. */
  handlers?: AbortController;
  forget(): void;
}

/** `revoked` is called once for each signal that is aborted. `giveUp` is the router's own signal. */
export function createRevocations(giveUp: AbortSignal, revoked: (signal: AbortSignal) => void): Revocations {
  const watched = new Map<AbortSignal, Watched>();
  let last: AbortSignal | undefined;

  const forgetGiveUp = whenAborted(giveUp, () => {
    for (const { handlers } of watched.values()) handlers?.abort(giveUp.reason);
  });

  function watch(signal: AbortSignal): void {
    // Nearly always the signal of the previous delivery.
    if (signal === last || watched.has(signal)) return;
    last = signal;
    const entry: Watched = { forget() {} };
    watched.set(signal, entry);
    entry.forget = whenAborted(signal, () => {
      watched.delete(signal);
      if (last === signal) last = undefined;
      entry.handlers?.abort(takenBack(signal));
      revoked(signal);
    });
  }

  return {
    watch,
    handlerSignal(signal) {
      const entry = watched.get(signal);
      if (entry === undefined) return signal;
      if (entry.handlers === undefined) {
        entry.handlers = new AbortController();
        // One listener for each message that is handled: Node.js would warn about a leak.
        setMaxListeners(0, entry.handlers.signal);
        if (giveUp.aborted) entry.handlers.abort(giveUp.reason);
      }
      return entry.handlers.signal;
    },
    end() {
      forgetGiveUp();
      for (const { forget } of watched.values()) forget();
      watched.clear();
      last = undefined;
    },
  };
}

function takenBack({ reason }: AbortSignal): PostboxError {
  const text = `the broker took the message back while it was handled: ${reasonOf(reason)}; it is delivered again`;
  return new PostboxError("delivery-revoked", text, { cause: reason });
}
