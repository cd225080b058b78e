import { coalesced } from "./internal/coalesced.js";
import { runtimeWith } from "./internal/runtime.js";
import type { OptionRule } from "./options.js";

/*
 * The seam for waking relays. Relays poll in any case: a notification only saves the time until the next poll.
 */

/**
 * Wakes the relays of a box after messages were appended to it. A notification has no content. It may be lost,
 * duplicated, or sent although nothing was appended: only latency depends on it.
 */
export interface Notifier {
  readonly name: string;
  /** Notifies the listeners of the box, in every process that it reaches. Several calls may become one notification. */
  notify(box: string): Promise<void>;
  /**
   * Listens until the signal is aborted. Rejects when it can no longer receive notifications, or never could; the relay
   * listens again later.
   */
  listen(box: string, listener: NotificationListener, signal: AbortSignal): Promise<void>;
  /** Whether the box may have listeners. If false, `notify` is not called. Absent: unknown. */
  isHeard?(box: string): boolean;
}

/** The functions that a notifier calls. */
export interface NotificationListener {
  /** It listens from now on. Earlier notifications may be lost. */
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
 * A listener is called at most this often, however many appends there are: a relay that finds messages polls again
 * soon.
 */
const restMs = 10;

const notified = Promise.resolve();

/**
 * Notifies the relays of this process that have the same notifier.
 *
 * @example
 * ```ts
 * const notifier = inProcessNotifier();
 * const outbox = createOutbox(store, { source: "/orders", notifier });
 * const relay = createRelay(store, sender, { notifier });
 * ```
 */
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
    // Called for every publish, so it allocates nothing, not even a promise. A box without listeners has no relay to
    // wake.
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

/** The notifier of all outboxes and relays in this process that share a store object and were given no other. */
export function defaultNotifier(store: object): Notifier {
  const known = defaults.get(store) ?? inProcessNotifier();
  defaults.set(store, known);
  return known;
}
