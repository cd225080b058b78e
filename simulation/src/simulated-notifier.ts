import type { Notifier } from "postbox";
import type { NotificationListener } from "postbox/store";
import type { Chance } from "./chance.js";
import type { Link } from "./link.js";
import type { Recorder } from "./recorder.js";

/** The listeners of all processes. */
export type Listeners = Set<NotificationListener>;

/** The probability that a notification is lost. */
const lost = 0.1;

/** A notifier whose notifications reach the other processes over the links to their database, or are lost. */
export function simulatedNotifier(listeners: Listeners, link: Link, recorder: Recorder, chance: Chance): Notifier {
  return {
    name: "simulated",
    async notify() {
      for (const listener of listeners) listener.notified();
    },
    async listen(_box, listener, signal) {
      if (signal.aborted) return;
      const far: NotificationListener = {
        listening: () => link.back(() => listener.listening()),
        notified() {
          if (chance.is(lost) || link.isCut) recorder.meet("a hint got lost");
          else link.back(() => listener.notified());
        },
      };
      const aborted = new Promise<void>((resolve) => {
        signal.addEventListener("abort", () => resolve(), { once: true });
      });
      listeners.add(far);
      far.listening();
      await aborted;
      listeners.delete(far);
    },
  };
}
