import type { ErrorCode } from "./errors.js";
import type { EventDefinition } from "./event/define-event.js";
import type { Message } from "./message/message.js";

/*
 * The broker seam. A transport is a Sender, a Receiver, or both. This file is all that the library knows of a broker.
 */

/** The state of a connection at this moment, known without asking the broker. Contains no secret. */
export interface TransportHealth {
  /** `idle`: not needed yet, or closed on purpose. `blocked`: connected, but the broker accepts no messages. */
  readonly status: "idle" | "connected" | "blocked" | "down";
  readonly since: Date;
  /** The last failure, however long ago. */
  readonly lastFailure?: { readonly code: ErrorCode; readonly text: string; readonly at: Date };
}

/** The outcome of one message. */
export type Outcome =
  /** The broker has stored it durably, and routed it to at least one queue. */
  | { readonly status: "sent" }
  /** It failed, and a retry may succeed: after `retryInMs`, if given, else after the relay's own delay. */
  | {
      readonly status: "failed";
      readonly error: Error;
      readonly retryInMs?: number;
      /** The cause is not the message, so no attempt is spent. Defaults to false. */
      readonly uncounted?: boolean;
    }
  /**
   * The part of the broker that it goes to cannot be reached, while other parts can. No attempt is spent. The relay
   * sends nothing else to that part (`Sender.scopeOf`) until it retries after a growing delay.
   */
  | { readonly status: "unavailable"; readonly error: Error }
  /** It can never be sent: too large, malformed, refused for good. No retry succeeds. */
  | { readonly status: "rejected"; readonly error: Error }
  /**
   * It was not sent, as the user chose for such messages. It leaves its box, with an entry in the audit, and its key
   * goes on.
   */
  | { readonly status: "dropped"; readonly error: Error };

/**
 * Carries messages to a broker.
 *
 * - `send` may be called again before an earlier call has returned.
 * - It reports each message's outcome once through `settled(index, outcome)`, as soon as it is known, in any order.
 * - It resolves when every message has its outcome. It rejects with a `TransportDownError` only if the broker cannot be
 *   reached, with `publish-timeout` if confirms take too long, and may reject with a `ConfigError` if authentication
 *   fails. The relay retries after each of these. Messages without an outcome by then may or may not have arrived, and
 *   no later call reports them.
 * - If a user's function (a route, a mapping) or an encoding throws for one message, that message is `rejected`, and
 *   the others are sent.
 * - When `signal` is aborted, it gives up soon and rejects. If the broker confirms a message after that, it still
 *   reports `sent` if it can, which saves sending the message again.
 */
export interface Sender {
  readonly name: string;
  /** Whether a failure within a batch also holds back later messages of the same key, as `failed` and `uncounted`. */
  readonly keepsOrder: boolean;
  /**
   * The part of the broker that a message goes to, if parts can be unavailable on their own, such as a partition or a
   * host. Cheap, and always the same for the same message. Undefined: not known before it is sent. Without this method,
   * the message's topic.
   */
  scopeOf?(message: Message): string | undefined;
  /**
   * Checks that the broker can be reached; rejects with a `TransportDownError` if not. Without it, the relay assumes
   * so.
   */
  connect?(signal: AbortSignal): Promise<void>;
  send(
    messages: readonly Message[],
    settled: (index: number, outcome: Outcome) => void,
    signal: AbortSignal,
  ): Promise<void>;
  /** The state of its connection. Absent if it has none. */
  health?(): TransportHealth;
  /**
   * Ends its connection once nothing is in flight. A later `send` connects again. A relay closes its sender when it
   * ends.
   */
  close?(): Promise<void>;
}

/** Where a message was in the broker. */
export interface Origin {
  readonly partition?: string;
  /** Its offset, or its delivery tag, which identifies it there. */
  readonly offset?: string;
}

/** The delivery came out of a box, from which its handler's own transaction removes it. */
export interface Kept {
  /** The name of the box. */
  readonly box: string;
  /** Whether it was removed, and whether that has committed. */
  handled: boolean;
  committed: boolean;
}

/**
 * One message, delivered to a consumer. One of the four verbs settles it, once; a second settlement throws
 * `delivery-settled`. A delivery that is never settled, because the process crashed, is delivered again.
 */
export interface Delivery {
  readonly message: Message;
  /**
   * Its stream: a partition, if the broker has them. Order and back-pressure hold per stream. Absent: the receiver has
   * a single stream.
   */
  readonly stream?: string;
  /**
   * Aborted when the broker has revoked the delivery: its connection was lost, or its partition was revoked. The broker
   * delivers the message again, perhaps to another process. A settlement then has no effect on the broker, and may
   * reject; settle the delivery all the same when the work on it has ended, since the receiver may wait for that. All
   * deliveries of a connection or stream share one signal, so that it costs nothing per message. Absent: the broker
   * never revokes a delivery.
   */
  readonly signal?: AbortSignal;
  /**
   * The number of this attempt: 1, plus one for each `retry()` that was the message's own failure. A delivery that ends
   * without an outcome (a crash, a lost connection, `release()`) counts for nothing.
   */
  readonly attempt: number;
  /**
   * Whether the broker has delivered the message before without learning its outcome. That only raises suspicion, since
   * a message that crashes its process leaves no other trace. Defaults to false.
   */
  readonly redelivered?: boolean;
  /** Where it was, if the broker tells. */
  readonly origin?: Origin;
  /** Set for a message from an inbox's box; only the inbox reads it. */
  readonly kept?: Kept;
  /** Handled: never deliver it again. Call it only after everything that the handler did has committed. */
  ack(): Promise<void>;
  /**
   * Failed: deliver it again after `delayMs`, as another attempt. If the cause is not the message (the inbox is busy,
   * the store is unavailable), the attempt is not counted. The reason is stored, if the transport can. Rejects and
   * settles nothing if the receiver settles in order and does not set aside.
   */
  retry(delayMs: number, reason?: Error): Promise<void>;
  /**
   * Parks it with this reason. Resolves once it is stored there. Rejects and settles nothing if the receiver settles in
   * order and does not set aside.
   */
  park(reason: Error): Promise<void>;
  /** Not tried: gives it back. Spends no attempt and keeps its place, as far as the broker can do both. */
  release(): Promise<void>;
}

/** What a consumer subscribes to: deliveries of these events, passed to `deliver`. */
export interface Subscription {
  /** The consumer's name. Stable, since brokers and the inbox remember it. */
  readonly consumer: string;
  /** The events that it has handlers for, including older types that they upcast. A transport binds queues by them. */
  readonly events: readonly Pick<EventDefinition, "type" | "topic">[];
  /**
   * Takes one delivery. The receiver passes the next one of the same stream when this resolves: that is the consumer's
   * back-pressure. It may be called for different streams at the same time; a stream that waits delays no other.
   */
  deliver(delivery: Delivery): Promise<void>;
  /** The receiver calls it whenever it starts or resumes receiving. The router's start waits for the first call. */
  ready?(): void;
}

/**
 * Receives messages from a broker.
 *
 * - `receive` runs until `signal` is aborted, and reconnects by itself. Then it delivers no more, waits until every
 *   delivery is settled, and returns.
 * - Unsettled deliveries are limited in count and bytes, per stream.
 * - Messages of one key are delivered in the broker's order, which is that of their stream.
 * - It declares what its broker can do: `settles`, `redelivery`, `selects`. A router that needs more refuses to run on
 *   it.
 */
export interface Receiver {
  readonly name: string;
  /**
   * How its broker learns of settlements. `each`: each delivery on its own; the broker can retry and park a single one.
   * `in-order`: as an offset below which everything is done. Then the broker cannot retry or park, so the router needs
   * an inbox, which stores failures. After a crash or a revocation, messages behind an unfinished one are delivered
   * again although they were acknowledged. Defaults to `each`.
   */
  readonly settles?: "each" | "in-order";
  /**
   * With `in-order`: the receiver itself retries a delivery, as long as its process lives, and parks it elsewhere; the
   * offset waits for that. Then a router needs no inbox. Defaults to false.
   */
  readonly setsAside?: boolean;
  /**
   * What its broker knows of earlier deliveries without an outcome. `counted`: the broker counts and limits them, so
   * that a message that crashes its process is parked in the end. `flagged`: `Delivery.redelivered` is true. `unknown`:
   * nothing; then the router needs `durableInbox(store)`, which stores each message before it is handled, since
   * otherwise such a message would crash its process for ever. Defaults to `flagged`.
   */
  readonly redelivery?: "counted" | "flagged" | "unknown";
  /**
   * What a subscription delivers. `type`: the types that it names. `topic`: everything in their topics, so that a
   * router ignores types without a handler, unless its option `onUnknownType` says otherwise. Defaults to `type`.
   */
  readonly selects?: "type" | "topic";
  /**
   * Whether several processes of a consumer may receive messages of one key at the same time, and so process or store
   * them in another order than the broker's. A router with `durableInbox(store)` reports that. Defaults to false: it is
   * not so, or the user has chosen it.
   */
  readonly splitsKeys?: boolean;
  /**
   * How long after its creation a message may still be redelivered. An inbox must remember ids for at least as long.
   * Absent: unknown.
   */
  readonly redeliveryWindowMs?: number;
  /**
   * Whether a failed delivery is stored where it came from, with its reason, and waits there before later messages of
   * its key. Then an inbox leaves that to it. Defaults to false.
   */
  readonly storesFailures?: boolean;
  /**
   * Makes what the consumer needs at the broker, such as a bound queue, and receives nothing. What is sent afterwards
   * waits there. May be repeated. Absent if nothing has to be made.
   */
  prepare?(subscription: Pick<Subscription, "consumer" | "events">): Promise<void>;
  receive(subscription: Subscription, signal: AbortSignal): Promise<void>;
  /** The state of its connection; the worst state if it runs more than once; absent if it has no connection. */
  health?(): TransportHealth;
}
