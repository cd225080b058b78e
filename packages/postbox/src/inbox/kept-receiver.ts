import { setMaxListeners } from "node:events";
import { PostboxError } from "../errors.js";
import { following } from "../internal/following.js";
import type { Runtime } from "../internal/runtime.js";
import { answerMs } from "../router/session.js";
import type { Delivery, Receiver, Subscription } from "../transport.js";
import type { Intake } from "./intake.js";

/** How long the store may take after a stop: less than the router gives the receiver to end. */
const storeMs = answerMs - 1_000;

export interface KeptReceiverOptions {
  /** Delivers what arrives. */
  readonly receiver: Receiver;
  /** Delivers what is in the consumer's box. */
  readonly source: Pick<Receiver, "receive">;
  /** Makes the intake of a run. */
  intake(): Intake;
  /** Whether a delivery is stored before a consumer with these handlers handles it. */
  isFirstKept(delivery: Delivery, handled: ReadonlySet<string>): boolean;
  readonly runtime: Runtime;
}

/** Receives what arrives, stores what must be stored first, and delivers the rest together with what is in the box. */
export async function receiveKept(
  { receiver, source, intake: makeIntake, isFirstKept, runtime }: KeptReceiverOptions,
  subscription: Subscription,
  signal: AbortSignal,
): Promise<void> {
  const intake = makeIntake();
  const handled = new Set(subscription.events.map(({ type }) => type));
  const arrive: Subscription["deliver"] = (delivery) =>
    isFirstKept(delivery, handled) ? intake.take(delivery) : subscription.deliver(delivery);
  // Messages are stored as long as the receiver waits for their settlement.
  const [stop, end, giveUp] = [following(signal), new AbortController(), new AbortController()];
  // One listener for each message that is stored: Node.js would warn about a leak.
  setMaxListeners(0, giveUp.signal);
  let cancel = () => {};
  stop.signal.addEventListener("abort", () => {
    cancel = runtime.schedule(() => giveUp.abort(unanswered()), storeMs);
  });
  const [ready, reached] = bothOf(() => subscription.ready?.());
  const parts = [
    receiver.receive({ ...subscription, deliver: arrive, ready }, stop.signal).finally(() => end.abort()),
    intake.run(stop.signal, end.signal, giveUp.signal),
    source.receive({ ...subscription, ready: reached }, stop.signal),
  ];
  try {
    await Promise.all(parts);
  } finally {
    stop.abort();
    end.abort();
    await Promise.allSettled(parts);
    cancel();
  }
}

/** Two callbacks: once both have been called, each further call calls `then`. */
function bothOf(then: () => void): readonly [() => void, () => void] {
  const called = [false, false];
  const heard = (index: number) => () => {
    called[index] = true;
    if (called.every(Boolean)) then();
  };
  return [heard(0), heard(1)];
}

function unanswered(): PostboxError {
  const text = `the store gave no answer within ${storeMs} ms after the stop; what was not stored is delivered again`;
  return new PostboxError("store-failed", text);
}
