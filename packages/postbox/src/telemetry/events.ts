import type { PostboxError } from "../errors.js";

/**
 * All events of the library, for loggers, metrics, health and tests. `relay.failed` with a `retryInMs` of Infinity ends
 * the relay; `relay.blocked` means that an open transaction comes before the rest of a total order. Names read
 * "noun.past-participle". A new event or field is no breaking change.
 */
export type TelemetryEvent =
  | { readonly name: "outbox.appended"; readonly box: string; readonly count: number }
  | { readonly name: "notifier.failed"; readonly box: string; readonly error: PostboxError }
  | { readonly name: "relay.listening"; readonly box: string }
  | {
      readonly name: "relay.listen-failed";
      readonly box: string;
      readonly error: PostboxError;
      readonly retryInMs: number;
    }
  | { readonly name: "relay.owned"; readonly box: string; readonly owner: string; readonly lanes: number }
  | { readonly name: "relay.lost"; readonly box: string; readonly owner: string; readonly lanes: number }
  | { readonly name: "relay.released"; readonly box: string; readonly owner: string; readonly lanes: number }
  /** After a failover, another server answers: the relay has forgotten what it had read, and reads it again. */
  | { readonly name: "relay.server-changed"; readonly box: string; readonly server: string }
  | { readonly name: "relay.read"; readonly box: string; readonly count: number }
  | { readonly name: "relay.blocked"; readonly box: string; readonly before: number }
  | { readonly name: "relay.settled"; readonly box: string; readonly sent: number; readonly waiting: number }
  | { readonly name: "relay.drained"; readonly box: string }
  | { readonly name: "relay.paused"; readonly box: string }
  | { readonly name: "relay.resumed"; readonly box: string }
  | { readonly name: "relay.promoted"; readonly box: string; readonly count: number }
  | {
      readonly name: "relay.cleaned";
      readonly box: string;
      readonly removed: number;
      /** What else the store's `purge` returned, such as `partitionsDropped` of PostgreSQL. */
      readonly figures: Readonly<Record<string, unknown>>;
    }
  | { readonly name: "relay.failed"; readonly box: string; readonly error: PostboxError; readonly retryInMs: number }
  /**
   * Its tick was claimed, and messages with these ids were published: one, or with `missed: "all"` one for each tick
   * that was due.
   */
  | {
      readonly name: "schedule.ticked";
      readonly schedule: string;
      /** The latest tick that was due, as an ISO 8601 timestamp. */
      readonly tick: string;
      readonly lateMs: number;
      readonly ids: readonly string[];
    }
  /** Its tick was missed, and nothing was published, because of `missed: "skip"`. */
  | { readonly name: "schedule.skipped"; readonly schedule: string; readonly tick: string; readonly lateMs: number }
  /** An entry failed, and is retried. With a `retryInMs` of Infinity and no entry, the schedule has ended. */
  | {
      readonly name: "schedule.failed";
      readonly schedule?: string;
      readonly error: PostboxError;
      readonly retryInMs: number;
    }
  | {
      readonly name: "breaker.opened";
      readonly box: string;
      readonly sender: string;
      readonly retryInMs: number;
      readonly error: PostboxError;
    }
  | { readonly name: "breaker.closed"; readonly box: string; readonly sender: string }
  /**
   * A part of the broker, such as a partition, cannot be reached. Its messages wait until it is retried after
   * `retryInMs`.
   */
  | {
      readonly name: "scope.unavailable";
      readonly box: string;
      readonly sender: string;
      readonly scope: string;
      readonly retryInMs: number;
      readonly error: PostboxError;
    }
  | { readonly name: "scope.available"; readonly box: string; readonly sender: string; readonly scope: string }
  | { readonly name: "message.sent"; readonly box: string; readonly id: string; readonly attempt: number }
  | ({
      readonly name: "message.failed";
      readonly box: string;
      readonly attempt: number;
      readonly retryInMs: number;
      readonly error: Error;
    } & AboutMessage)
  | { readonly name: "message.late"; readonly box: string; readonly id: string; readonly ageMs: number }
  /** It waits: behind a failed message of its key, or because its destination is unavailable. */
  | { readonly name: "message.held"; readonly box: string; readonly id: string; readonly key?: string }
  | { readonly name: "message.suspected"; readonly box: string; readonly id: string; readonly crashes: number }
  | ({ readonly name: "message.parked"; readonly box: string; readonly error: Error } & AboutMessage)
  | ({ readonly name: "message.dropped"; readonly box: string; readonly error: Error } & AboutMessage)
  /** A direct publisher did not send the message, as its sender's options ask for. */
  | { readonly name: "publisher.dropped"; readonly sender: string; readonly id: string; readonly error: Error }
  | { readonly name: "delivery.received"; readonly consumer: string; readonly id: string; readonly attempt: number }
  /** An inbox has stored it, and it is acknowledged. `delivery.received` follows when it comes out of the inbox. */
  | { readonly name: "delivery.stored"; readonly consumer: string; readonly id: string }
  | { readonly name: "delivery.skipped"; readonly consumer: string; readonly id: string }
  | { readonly name: "delivery.handled"; readonly consumer: string; readonly id: string; readonly durationMs: number }
  | { readonly name: "delivery.acked"; readonly consumer: string; readonly id: string }
  | ({
      readonly name: "delivery.retried";
      readonly consumer: string;
      readonly attempt: number;
      readonly retryInMs: number;
      readonly error: Error;
    } & AboutMessage)
  | ({ readonly name: "delivery.parked"; readonly consumer: string; readonly error: Error } & AboutMessage)
  /** Its handler did not end in time. Its transaction was rolled back by force, and nothing waits for the handler. */
  | ({ readonly name: "delivery.abandoned"; readonly consumer: string; readonly error: Error } & AboutMessage)
  | { readonly name: "delivery.ignored"; readonly consumer: string; readonly id: string; readonly type: string }
  /**
   * This instance has no handler for a type that its consumer receives; another instance has, or had. Once per type and
   * run.
   */
  | {
      readonly name: "consumer.types-differ";
      readonly consumer: string;
      /** The type without a handler here. */
      readonly type: string;
      /** The types that have a handler here. */
      readonly handled: readonly string[];
    }
  /** Its handler has run for longer than `slowAfterMs`, and still runs. Once per handling. */
  | ({
      readonly name: "delivery.slow";
      readonly consumer: string;
      readonly runningMs: number;
      readonly error: PostboxError;
    } & AboutMessage)
  | { readonly name: "delivery.released"; readonly consumer: string; readonly id: string }
  /**
   * The broker revoked it before it was settled, and delivers it again. If its handler was running, this is reported
   * when the handler ends.
   */
  | { readonly name: "delivery.revoked"; readonly consumer: string; readonly id: string }
  | ({ readonly name: "transport.connected" } & TransportEnd)
  /**
   * The connection was lost or could not be opened. It is retried after `retryInMs`; without it, when it is needed
   * next, or never.
   */
  | ({ readonly name: "transport.lost"; readonly error: PostboxError; readonly retryInMs?: number } & TransportEnd)
  /** The broker is connected, and accepts no messages. */
  | ({ readonly name: "transport.blocked"; readonly reason: string } & TransportEnd)
  | ({ readonly name: "transport.unblocked" } & TransportEnd)
  /** With `retryInMs`, its message keeps its place, and is handled again after that time. */
  | {
      readonly name: "router.failed";
      readonly consumer: string;
      readonly error: PostboxError;
      readonly retryInMs?: number;
    }
  /**
   * The handlers of this process may use every connection of their store's pool, so that they wait for each other, and
   * requests wait for them. Once per run of a router; not if the database has a single connection.
   */
  | {
      readonly name: "router.constrained";
      /** The consumer that has just started. */
      readonly consumer: string;
      /** All consumers of the store, including this one. */
      readonly consumers: readonly string[];
      /** How many of their handlers may run at a time. */
      readonly concurrency: number;
      readonly maxTransactions: number;
      readonly error: PostboxError;
    }
  /**
   * Several processes of this consumer with `durableInbox(store)` may receive messages of one key at the same time, so
   * that the box stores them in another order than the broker's. Once per run of a router.
   */
  | { readonly name: "router.unordered"; readonly consumer: string; readonly error: PostboxError }
  /**
   * These handlers had not ended by the deadline of a stop. Their messages were given back, and nothing waits for the
   * handlers.
   */
  | {
      readonly name: "router.abandoned";
      readonly consumer: string;
      readonly ids: readonly string[];
      readonly error: PostboxError;
    };

/** Identifies the message of an event. */
export interface AboutMessage {
  readonly id: string;
  /** Absent if it cannot be read. */
  readonly type?: string;
  readonly key?: string;
}

export function aboutMessage({ id, type, key }: AboutMessage & { readonly type: string }): AboutMessage {
  return key === undefined ? { id, type } : { id, type, key };
}

/** Identifies the connection of an event. */
export interface TransportEnd {
  /** The name of the sender or receiver. */
  readonly transport: string;
  readonly end: "sender" | "receiver";
  /** The connection's name at the broker, and a receiver's queue. */
  readonly whose: string;
  /** The broker's address, without credentials. */
  readonly place: string;
}

/** Receives telemetry events. Must return quickly; errors that it throws are ignored. */
export type Telemetry = (event: TelemetryEvent) => void;
