import { exponential } from "../../backoff.js";
import { PostboxError } from "../../errors.js";
import { sleep } from "../../internal/runtime.js";
import type { Notifier } from "../../notifier.js";
import type { DrainContext } from "../context.js";

export interface ListenerOptions extends Pick<DrainContext, "boxName" | "runtime" | "telemetry"> {
  readonly notifier: Notifier;
  /** The box may have new rows. */
  notified(): void;
}

const backoff = exponential({ initialMs: 200, maxMs: 30_000 });

/**
 * Listens for notifications until the signal is aborted, and again after each failure. Never rejects: without
 * notifications, a relay still finds everything by polling, only later.
 */
export async function listen(options: ListenerOptions, signal: AbortSignal): Promise<void> {
  const { notifier, boxName: box, runtime, telemetry, notified } = options;
  let failures = 0;
  const listening = () => {
    failures = 0;
    telemetry({ name: "relay.listening", box });
    // Notifications from before were not heard.
    notified();
  };
  while (!signal.aborted) {
    try {
      await notifier.listen(box, { listening, notified }, signal);
      if (!signal.aborted)
        throw new PostboxError("store-failed", `the notifier ${notifier.name} stopped listening by itself`);
    } catch (error) {
      const retryInMs = backoff(++failures, runtime.random);
      telemetry({ name: "relay.listen-failed", box, error: PostboxError.from(error, "store-failed"), retryInMs });
      await sleep(runtime, retryInMs, signal);
    }
  }
}
