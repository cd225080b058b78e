import type { Activity } from "./activity.js";
import { NotSettledError, type UnhandledMessage } from "./not-settled-error.js";
import { within } from "./within.js";

/** Options of `settled`. */
export interface SettledOptions {
  /**
   * The most deliveries to wait for. Handlers that publish to each other without end are an error. Defaults to 1,000.
   */
  readonly maxDeliveries?: number;
  /** How long a handler, or the store, may make no progress, in real time. Defaults to 5,000. */
  readonly timeoutMs?: number;
}

/** The state of all messages at one moment. */
export interface Standing {
  /** What can continue without any time passing, as text; empty if nothing can. */
  readonly busy: readonly string[];
  readonly unhandled: readonly UnhandledMessage[];
  /** Called once these messages were reported. The parked ones are omitted from now on. */
  reported(): void;
}

export interface Settling {
  readonly activity: Activity;
  /** The number of deliveries so far. */
  deliveries(): number;
  /** Whether a handler is running. Then `settle` only waits for its end. */
  isHandling(): boolean;
  /** Asks the store and the broker. */
  standing(): Promise<Standing>;
  /** Makes the relay and the consumers poll at once; absent if they poll in real time. */
  poll?(): Promise<void>;
}

/** If something is busy, but this many polls in a row find nothing, it is stuck: each poll reads everything. */
const fruitlessPolls = 5;
/**
 * In real time, a user's own router may handle a message without telemetry. So the store and the broker are asked again
 * after this delay.
 */
const askAgainMs = 25;

/** Waits until nothing can continue without time passing. Rejects if a message is not handled then. */
export async function settle(settling: Settling, options: SettledOptions = {}): Promise<void> {
  const { activity } = settling;
  const { maxDeliveries = 1_000, timeoutMs = 5_000 } = options;
  const mostDeliveries = settling.deliveries() + maxDeliveries;
  let fruitless = 0;
  let last = { progress: "", at: performance.now() };
  for (;;) {
    const seen = activity.count;
    const standing = await within(timeoutMs, settling.standing(), () => storeSilent(timeoutMs));
    const { busy } = standing;
    const unhandled = failedFirst(standing.unhandled);
    const isQuiet = busy.length === 0 && !settling.isHandling();
    // A handler may have published after the outbox was read, and ended before its queue was.
    if (isQuiet && activity.count !== seen) continue;
    if (isQuiet) {
      if (unhandled.length === 0) return;
      standing.reported();
      const what = `${unhandled.length === 1 ? "1 message is" : `${unhandled.length} messages are`} not handled`;
      const text = `${what}; correct what failed, or expect this error if the test is about it:`;
      throw new NotSettledError(text, unhandled, causeOf(settling, unhandled));
    }
    if (settling.deliveries() > mostDeliveries) {
      const text =
        `more than ${maxDeliveries} deliveries; handlers publish for each other without an end, or raise ` +
        "maxDeliveries";
      throw new NotSettledError(`${text} (${busy.join(", ")})`, unhandled);
    }
    const stuck = (what: string, advice: string) => {
      const text = `${what} while ${[...activity.handling, ...busy].join(", ")}; ${advice}`;
      return new NotSettledError(text, unhandled, causeOf(settling, unhandled));
    };
    const silent = () =>
      stuck(
        `nothing happened for ${timeoutMs} ms`,
        "let the handler end, or call clock.advance(ms) meanwhile if it waits for time to pass",
      );
    // Does not ask the store meanwhile, since the handler may use its only connection.
    if (settling.isHandling()) {
      await within(timeoutMs, activity.since(seen), silent);
      continue;
    }
    if (settling.poll === undefined) {
      const progress = [seen, ...busy].join();
      if (progress !== last.progress) last = { progress, at: performance.now() };
      if (performance.now() - last.at >= timeoutMs) throw silent();
      await sooner(activity.since(seen), askAgainMs);
      continue;
    }
    await settling.poll();
    fruitless = activity.count === seen ? fruitless + 1 : 0;
    if (fruitless === fruitlessPolls) throw stuck("nothing happens", "resume its box if that is paused");
  }
}

/** Captured early, since a test may replace the timers of its process. */
const { setTimeout, clearTimeout } = globalThis;

/** Waits for an event, but at most `ms`. */
async function sooner(event: Promise<void>, ms: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const time = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  await Promise.race([event, time]);
  clearTimeout(timer);
}

/** Those that wait only follow from those that failed. */
function failedFirst(messages: readonly UnhandledMessage[]): readonly UnhandledMessage[] {
  const isWaiting = ({ status }: UnhandledMessage) => Number(status === "waiting");
  return [...messages].sort((a, b) => isWaiting(a) - isWaiting(b));
}

/** The error itself, which says more than its stored text. */
function causeOf({ activity }: Settling, [first]: readonly UnhandledMessage[]): Error | undefined {
  return first && activity.errorOf(first.id, first.consumer);
}

/** The store does not answer, probably because a transaction occupies its only connection. */
export function storeSilent(timeoutMs: number): NotSettledError {
  const text =
    `the store did not answer within ${timeoutMs} ms; ` +
    "end open transactions before settled(), or check the database";
  return new NotSettledError(text, []);
}
