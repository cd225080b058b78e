import { type Backoff, delayAfter } from "../backoff.js";
import type { Runtime } from "../internal/runtime.js";
import type { Message } from "../message/message.js";
import type { Telemetry } from "../telemetry/events.js";

export interface UnknownTypesOptions {
  readonly consumer: string;
  /** The types that this instance has handlers for. */
  readonly handled: readonly string[];
  /** How long a message waits for an instance that has a handler. */
  readonly waitMs: number;
  readonly backoff: Backoff;
  readonly telemetry: Telemetry;
  readonly runtime: Runtime;
}

/**
 * Tracks the types that are delivered to this consumer without a handler in this instance. During a rolling deployment,
 * another instance handles them. Each type is reported once.
 */
export interface UnknownTypes {
  /**
   * The delay before the message is delivered again, perhaps to another instance; undefined if it has waited long
   * enough.
   */
  retryInMs(message: Pick<Message, "type" | "time">): number | undefined;
}

/** Anyone may publish any type to a queue, so a run remembers a bounded number of types. */
const mostTypes = 1000;

export function createUnknownTypes(options: UnknownTypesOptions): UnknownTypes {
  const { consumer, handled, waitMs, backoff, telemetry, runtime } = options;
  const startedAt = runtime.now();
  const firstSeenAt = new Map<string, number>();

  function firstSeen(type: string, now: number): number {
    const before = firstSeenAt.get(type);
    if (before !== undefined) return before;
    if (firstSeenAt.size === mostTypes) return startedAt;
    firstSeenAt.set(type, now);
    telemetry({ name: "consumer.types-differ", consumer, type, handled });
    return now;
  }

  return {
    retryInMs({ type, time }) {
      const now = runtime.now();
      // Attempts belong to the instance with the handler, so they are not counted here. The wait begins when the
      // message is published, but not before this run has seen its type, so that a backlog does not use up the time.
      const publishedAt = time === undefined ? 0 : Math.min(now, Date.parse(time) || 0);
      const waitedMs = now - Math.max(firstSeen(type, now), publishedAt);
      return waitedMs < waitMs ? delayAfter(backoff, waitedMs, runtime.random) : undefined;
    },
  };
}
