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
   * Sends committed messages until the signal is aborted. Then it finishes what is in flight, gives its lanes back and
   * closes the sender.
   *
   * Rejects only if retrying can never succeed: a missing or newer schema, wrong options, or credentials that the
   * database or the broker refuses before it has accepted them once. All other failures are reported to telemetry and
   * retried.
   */
  run(signal?: AbortSignal): Promise<void>;
  /**
   * Runs `run` in the background. Resolves to true once it has reached the database and the broker, however long that
   * takes, and to false if `stop` was called first. Rejects if retrying can never succeed. Throws `already-started`
   * while it runs.
   *
   * You need not await it. If a run fails, telemetry reports it and `stop` rejects with its error; then the relay can
   * be started again.
   */
  start(): Promise<boolean>;
  /** Stops what `start` began and waits for it. */
  stop(): Promise<void>;
  /** The same as `stop`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Makes a relay. Any number of relays may drain one box: they share its lanes evenly, and when one crashes, the others
 * take over its lanes after `leaseMs`. All messages of a key are in one lane, so they keep their order.
 *
 * Delivery is at least once: messages that were sent but not settled before a crash are sent again, with the same id.
 *
 * @example
 * ```ts
 * const relay = createRelay(store, sender);
 * await relay.start();
 * process.once("SIGTERM", () => relay.stop());
 * ```
 */
export function createRelay<S extends Store>(
  store: S,
  sender: Sender,
  options: RelayOptions & OwnPurgeOptions<S> = {} as RelayOptions & OwnPurgeOptions<S>,
): Relay {
  if (typeof sender?.send !== "function") {
    throw new ConfigError(
      "option-invalid",
      "createRelay(store, sender): the second argument is no sender; pass one, such as broker.sender(), " +
        "or use outboxReceiver(store) to handle messages without a broker",
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
