import { ConfigError } from "../errors.js";
import { startStop } from "../internal/start-stop.js";
import { outboxBox } from "../outbox/outbox.js";
import type { Store } from "../store.js";
import type { Sender } from "../transport.js";
import { outboxDrainLoop } from "./outbox-drain-loop.js";
import type { OwnPurgeOptions, RelayOptions } from "./relay-options.js";
import { targetTo } from "./sending/dispatch.js";
import { runTo } from "./sending/run-to.js";

/** Drains an outbox to a sender. */
export interface Relay {
  /**
   * Sends what is committed until the signal is aborted; then finishes what is on its way, gives its lanes back and closes the sender.
   * Rejects only for what no retry can mend: a missing or newer schema, wrong options, and, as long as they have never let it in, a
   * database or broker that refuses its credentials. All else is told to telemetry and tried again.
   */
  run(signal?: AbortSignal): Promise<void>;
  /**
   * `run` in the background. Resolves to true when it has reached both the database and the broker, which it tries for as long as it
   * takes, and to false if `stop` was called first. Rejects for what no retry can mend. You need not await it: telemetry reports a run
   * that fails, and `stop` rejects with its error; then it may be started again. Throws `already-started` while it runs.
   */
  start(): Promise<boolean>;
  /** Stops what `start` began and waits for it. */
  stop(): Promise<void>;
  /** The same as `stop`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Makes a relay. Any number may run against one box: they share its lanes evenly, and when one crashes, the others take
 * its lanes after `leaseMs`. A key's messages are in one lane, so they keep their order. At least once: what was sent but not yet
 * settled when it crashed is sent again, with the same id.
 */
export function createRelay<S extends Store>(
  store: S,
  sender: Sender,
  options: RelayOptions & OwnPurgeOptions<S> = {} as RelayOptions & OwnPurgeOptions<S>,
): Relay {
  if (typeof sender?.send !== "function") {
    throw new ConfigError(
      "option-invalid",
      "createRelay(store, sender): give a sender, such as broker.sender(); to handle from the outbox itself, use outboxReceiver(store)",
    );
  }
  const { drainLoop, leaseMs, publishTimeoutMs, backoff, runtime, telemetry } = outboxDrainLoop(
    "createRelay",
    store,
    options,
  );
  const target = targetTo(sender, { boxName: outboxBox, publishTimeoutMs, leaseMs, backoff, runtime, telemetry });
  const run = (signal: AbortSignal, ready: () => void) =>
    runTo(sender, { box: outboxBox, backoff, runtime, telemetry }, signal, ready, (stop, reached) =>
      drainLoop.run(target, stop, reached),
    );
  const background = startStop("relay", run);
  return {
    run: (signal = new AbortController().signal) => run(signal, () => {}),
    start: () => background.start(),
    stop: () => background.stop(),
    [Symbol.asyncDispose]: () => background.stop(),
  };
}
