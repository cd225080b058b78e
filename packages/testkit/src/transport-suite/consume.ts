import type { Receiver } from "postbox";
import type { Delivery, Subscription } from "postbox/transport";
import { gate } from "../gate.js";
import { patiently } from "../patience.js";

/** A consumer that the test controls: it settles nothing by itself. */
export interface Consumer {
  readonly receiver: Receiver;
  /** Every delivery so far. */
  readonly deliveries: readonly Delivery[];
  /** Resolves when it receives: its queue is bound by then. */
  readonly ready: Promise<void>;
  /** Resolves when `receive` has returned. */
  readonly running: Promise<void>;
  /** The next delivery that `next` has not returned yet; fails after `patienceMs`. */
  next(): Promise<Delivery>;
  take(count: number): Promise<Delivery[]>;
  /** Aborts it without waiting. */
  abort(): void;
  /** With `reconnects`: its connection is lost, and it opens another one. */
  interrupt(): Promise<void>;
  /** Acts like a crash of its process. */
  crash(): Promise<void>;
  /** Ends it in whatever state it is, so that a failed fact does not hold up the next one. */
  abandon(): Promise<void>;
}

export function consume(
  receiver: Receiver,
  wanted: Omit<Subscription, "deliver">,
  {
    crash,
    interrupt,
    accept,
  }: { crash(): Promise<void>; interrupt(): Promise<void>; accept?: (delivery: Delivery) => Promise<void> },
): Consumer {
  const deliveries: Delivery[] = [];
  const stopping = new AbortController();
  let asked = 0;
  let arrived = () => {};
  const { opened: ready, open } = gate();
  const running = receiver.receive(
    {
      ...wanted,
      ready: open,
      async deliver(delivery) {
        deliveries.push(delivery);
        arrived();
        await accept?.(delivery);
      },
    },
    stopping.signal,
  );
  // The caller that awaits `running` gets the error; until then it must not end the test run.
  running.catch(() => {});

  const seen = () => deliveries.map(({ message, attempt }) => `${message.id} (attempt ${attempt})`).join(", ");
  const next = async (): Promise<Delivery> => {
    if (deliveries.length === asked) {
      const arrival = new Promise<void>((resolve) => {
        arrived = resolve;
      });
      await patiently(arrival, () => `a further delivery; so far: ${seen() || "none"}`);
    }
    return deliveries[asked++] as Delivery;
  };

  return {
    receiver,
    deliveries,
    running,
    next,
    async take(count) {
      const taken: Delivery[] = [];
      while (taken.length < count) taken.push(await next());
      return taken;
    },
    ready,
    abort: () => stopping.abort(),
    crash,
    interrupt,
    async abandon() {
      stopping.abort();
      await crash();
    },
  };
}
