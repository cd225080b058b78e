import type { PostboxError } from "../errors.js";

/**
 * Everything worth knowing that happens inside the library. `relay.failed` with a `retryInMs` of Infinity is its end;
 * `relay.blocked` says that a transaction is open which comes before the rest of a total order. Loggers, metrics,
 * health and tests all listen to these. Names read "noun.past-participle"; a new event or field is not a breaking
 * change.
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
  /**
   * Another server answers than before, after a failover: the relay has forgotten what it had read, and reads it again.
   */
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
      /** What else `purge` of the store answered, such as `partitionsDropped` of PostgreSQL. */
      readonly figures: Readonly<Record<string, unknown>>;
    }
  | { readonly name: "relay.failed"; readonly box: string; readonly error: PostboxError; readonly retryInMs: number }
  /**
   * Its tick was claimed, and the messages of these ids published: one, or with `missed: "all"` one for each tick that
   * was due.
   */
  | {
      readonly name: "schedule.ticked";
      readonly schedule: string;
      /** The latest of the ticks that were due, as an ISO 8601 timestamp. */
      readonly tick: string;
      readonly lateMs: number;
      readonly ids: readonly string[];
    }
  /** Its tick was missed, and with `missed: "skip"` nothing was published. */
  | { readonly name: "schedule.skipped"; readonly schedule: string; readonly tick: string; readonly lateMs: number }
  /** An entry failed, and is tried again; with a `retryInMs` of Infinity, and no entry, the schedule has ended. */
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
   * A part of the broker cannot be reached, such as a partition: what goes there waits until it is tried again after
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
  /** It waits: behind a failed one of its key, or since what it goes to is unavailable. */
  | { readonly name: "message.held"; readonly box: string; readonly id: string; readonly key?: string }
  | { readonly name: "message.suspected"; readonly box: string; readonly id: string; readonly crashes: number }
  | ({ readonly name: "message.parked"; readonly box: string; readonly error: Error } & AboutMessage)
  | ({ readonly name: "message.dropped"; readonly box: string; readonly error: Error } & AboutMessage)
  /** A direct publisher's message was not sent, as its sender was told for such messages. */
  | { readonly name: "publisher.dropped"; readonly sender: string; readonly id: string; readonly error: Error }
  | { readonly name: "delivery.received"; readonly consumer: string; readonly id: string; readonly attempt: number }
  /** An inbox has stored it, and the broker is done with it: it is received when it comes out of there. */
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
  /**
   * Its handler did not end in time: its transaction was rolled back by force, and what it still does is not waited
   * for.
   */
  | ({ readonly name: "delivery.abandoned"; readonly consumer: string; readonly error: Error } & AboutMessage)
  | { readonly name: "delivery.ignored"; readonly consumer: string; readonly id: string; readonly type: string }
  /**
   * This instance has no handler for a type that its consumer receives, so another one has, or had. Once per type and
   * run.
   */
  | {
      readonly name: "consumer.types-differ";
      readonly consumer: string;
      /** Without a handler here. */
      readonly type: string;
      /** The types with one. */
      readonly handled: readonly string[];
    }
  /** It has run for longer than `slowAfterMs`, and still runs. Once per handling. */
  | ({
      readonly name: "delivery.slow";
      readonly consumer: string;
      readonly runningMs: number;
      readonly error: PostboxError;
    } & AboutMessage)
  | { readonly name: "delivery.released"; readonly consumer: string; readonly id: string }
  /**
   * The broker took it back before it was settled, and delivers it again. If its handler was running, this is reported
   * when that ends.
   */
  | { readonly name: "delivery.revoked"; readonly consumer: string; readonly id: string }
  | ({ readonly name: "transport.connected" } & TransportEnd)
  /**
   * It has no connection: it lost it, or got none. Tried again after `retryInMs`; without that, when it is next needed,
   * or never.
   */
  | ({ readonly name: "transport.lost"; readonly error: PostboxError; readonly retryInMs?: number } & TransportEnd)
  /** The broker is connected, and takes nothing. */
  | ({ readonly name: "transport.blocked"; readonly reason: string } & TransportEnd)
  | ({ readonly name: "transport.unblocked" } & TransportEnd)
  /** With `retryInMs`, its message keeps its place, and is handled again then. */
  | {
      readonly name: "router.failed";
      readonly consumer: string;
      readonly error: PostboxError;
      readonly retryInMs?: number;
    }
  /**
   * Handlers of this process may take all connections of their store's pool, so that they wait for each other, and
   * requests for them. Once per run of a router; not where the database has a single connection.
   */
  | {
      readonly name: "router.constrained";
      /** The consumer that has just started. */
      readonly consumer: string;
      /** All that work on the store, with this one. */
      readonly consumers: readonly string[];
      /** How many handlers of theirs may run at a time. */
      readonly concurrency: number;
      readonly maxTransactions: number;
      readonly error: PostboxError;
    }
  /**
   * At a stop, these handlers had not ended by its deadline. Their messages were given back; what they still do is not
   * waited for.
   */
  | {
      readonly name: "router.abandoned";
      readonly consumer: string;
      readonly ids: readonly string[];
      readonly error: PostboxError;
    };

/** Which message it is about, for whoever has to find out what is wrong with it. */
export interface AboutMessage {
  readonly id: string;
  /** Absent where it cannot be read. */
  readonly type?: string;
  readonly key?: string;
}

export function aboutMessage({ id, type, key }: AboutMessage & { readonly type: string }): AboutMessage {
  return key === undefined ? { id, type } : { id, type, key };
}

/** Which connection it is about. */
export interface TransportEnd {
  /** The name of the sender or receiver. */
  readonly transport: string;
  readonly end: "sender" | "receiver";
  /** Whose connection: its name at the broker, and of a receiver its queue. */
  readonly whose: string;
  /** Where it leads, without who somebody is there. */
  readonly place: string;
}

/** Takes telemetry events. Must return quickly; what it throws is swallowed. */
export type Telemetry = (event: TelemetryEvent) => void;
