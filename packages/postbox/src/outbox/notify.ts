import { PostboxError } from "../errors.js";
import type { Notifier } from "../notifier.js";
import type { Store } from "../store.js";
import type { Telemetry } from "../telemetry/events.js";

/**
 * Notifies relays of what was appended in a transaction: after its COMMIT if the store opened it, and at once if its
 * end cannot be known here. No publish waits for it or fails because of it.
 */
export function notifyOf<Tx>(
  store: Store<Tx>,
  box: string,
  notifier: Notifier | false,
  telemetry: Telemetry,
): (tx: Tx) => void {
  if (notifier === false) return () => {};
  const failed = (thrown: unknown) =>
    telemetry({ name: "notifier.failed", box, error: PostboxError.from(thrown, "store-failed") });
  // Whatever the notifier does, the publish is done, and its transaction may have committed.
  const notify = async () => {
    try {
      await notifier.notify(box);
    } catch (thrown) {
      failed(thrown);
    }
  };
  const isHeard = () => {
    try {
      return notifier.isHeard?.(box) !== false;
    } catch (thrown) {
      failed(thrown);
      return true;
    }
  };
  return (tx) => {
    if (isHeard() && store.afterCommit?.(tx, notify) !== true) void notify();
  };
}
