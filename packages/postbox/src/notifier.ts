import { coalesced } from "./internal/coalesced.js";
import { runtimeWith } from "./internal/runtime.js";
import type { OptionRule } from "./options.js";

/*
 * The seam for waking relays. Relays poll in any case: a notification only saves them the time until the next poll.
 */

/**
 * Wakes the relays of a box after messages were appended to it. A notification carries nothing. It may be lost, come
 * twice, or come although nothing was appended; nothing but time depends on it.
 */
export interface Notifier {
  readonly name: string;
  /**
   * Notifies whoever listens to the box, in any process that it reaches. Many calls at once may become few
   * notifications.
   */
  notify(box: string): Promise<void>;
  /**
   * Listens until the signal is aborted. Rejects when it can hear nothing more, or never could; the relay then listens
   * again, later.
   */
  listen(box: string, listener: NotificationListener, signal: AbortSignal): Promise<void>;
  /** Whether anyone may listen. False saves the call of `notify`. Absent: unknown. */
  isHeard?(box: string): boolean;
}

export interface NotificationListener {
  /** It hears from now on. What was notified before was not heard. */
  listening(): void;
  notified(): void;
}

export const notifierRule: OptionRule = {
  expected: "a Notifier, such as postgresNotifier({ pool }), or false",
  test: (value) =>
    value === false ||
    ["notify", "listen"].every((verb) => typeof (value as Record<string, unknown> | null)?.[verb] === "function"),
};

/**
 * So often at most does a listener hear of any number of appends: a relay that finds messages polls again soon anyway.
 */
const restMs = 10;

const notified = Promise.resolve();

/** Notifies the relays of this process that were given the same notifier. */
export function inProcessNotifier(): Notifier {
  const runtime = runtimeWith();
  const boxes = new Map<string, { readonly listeners: Set<NotificationListener>; readonly wake: () => void }>();
  const makeBox = (name: string) => {
    const listeners = new Set<NotificationListener>();
    const wakeAll = async () => {
      for (const listener of listeners) listener.notified();
    };
    const made = { listeners, wake: coalesced(wakeAll, restMs, runtime) };
    boxes.set(name, made);
    return made;
  };
  return {
    name: "in-process",
    isHeard: (box) => (boxes.get(box)?.listeners.size ?? 0) > 0,
    // For every publish: it makes nothing, not even a promise. A box without listeners has none to wake.
    notify(box) {
      boxes.get(box)?.wake();
      return notified;
    },
    async listen(box, listener, signal) {
      if (signal.aborted) return;
      const { listeners } = boxes.get(box) ?? makeBox(box);
      const aborted = new Promise<void>((resolve) => {
        signal.addEventListener("abort", () => resolve(), { once: true });
      });
      listeners.add(listener);
      listener.listening();
      await aborted;
      listeners.delete(listener);
    },
  };
}

const defaults = new WeakMap<object, Notifier>();

/** The notifier of the outboxes and relays in this process that work on one store object and were given no other. */
export function defaultNotifier(store: object): Notifier {
  const known = defaults.get(store) ?? inProcessNotifier();
  defaults.set(store, known);
  return known;
}
