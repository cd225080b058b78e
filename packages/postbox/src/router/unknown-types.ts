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
 * The types that one run of a router has no handler for, though they are delivered to its consumer. During a rolling
 * deployment another instance handles them. Each type is reported once.
 */
export interface UnknownTypes {
  /**
   * The delay before the message is delivered again, perhaps to another instance; undefined once it has waited long
   * enough.
   */
  retryInMs(message: Pick<Message, "type" | "time">): number | undefined;
}

/** Anyone may publish any type to a queue: the memory of a run stays bounded. */
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
      // Attempts are not counted, since they belong to the instance that has the handler. The wait begins when the
      // message is published, but not before this run has seen its type: a backlog does not use the time up.
      const publishedAt = time === undefined ? 0 : Math.min(now, Date.parse(time) || 0);
      const waitedMs = now - Math.max(firstSeen(type, now), publishedAt);
      return waitedMs < waitMs ? delayAfter(backoff, waitedMs, runtime.random) : undefined;
    },
  };
}
