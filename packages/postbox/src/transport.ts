import type { ErrorCode } from "./errors.js";
import type { EventDefinition } from "./event/define-event.js";
import type { Message } from "./message/message.js";

/*
 * The broker seam. A transport is a Sender, a Receiver, or both; this file is all that the library knows of a broker.
 */

/** What is known of a connection at this moment, without asking the broker. Holds no secret. */
export interface TransportHealth {
  /**
   * `idle`: nobody has needed one yet, or it was closed on purpose. `blocked`: connected, but the broker takes nothing.
   */
  readonly status: "idle" | "connected" | "blocked" | "down";
  readonly since: Date;
  /** What went wrong last, however long ago. */
  readonly lastFailure?: { readonly code: ErrorCode; readonly text: string; readonly at: Date };
}

/** What became of one message. */
export type Outcome =
  /** The broker has it, durably, and it reaches at least one queue. */
  | { readonly status: "sent" }
  /**
   * Not now. Sending it again may succeed; not before `retryInMs`, where given, instead of after the relay's own delay.
   */
  | {
      readonly status: "failed";
      readonly error: Error;
      readonly retryInMs?: number;
      /** The reason lies outside of the message: no attempt is spent. Defaults to false. */
      readonly uncounted?: boolean;
    }
  /**
   * Not now: the part of the broker that it goes to cannot be reached, while others can. No attempt is spent, and the
   * relay sends nothing else to that part, `Sender.scopeOf`, until it tries it again after a delay that grows.
   */
  | { readonly status: "unavailable"; readonly error: Error }
  /** Never: too large, malformed, refused for good. Sending it again is pointless. */
  | { readonly status: "rejected"; readonly error: Error }
  /**
   * Not sent, as the user has chosen for such a message: it leaves its box, with an entry in the audit. Its key goes
   * on.
   */
  | { readonly status: "dropped"; readonly error: Error };

/**
 * Carries messages to a broker.
 *
 * - `send` may be called again before an earlier call has returned.
 * - Each message's outcome is reported through `settled(index, outcome)` as soon as it is known, once, in any order.
 * - It resolves when every message has its outcome. It rejects with a `TransportDownError` only when the broker cannot
 *   be reached, and with `publish-timeout` when it has waited long enough for confirms; messages without an outcome by
 *   then may or may not have arrived, and no later call reports them. If authentication fails, it may reject with a
 *   `ConfigError`. A relay waits and tries again after each of these.
 * - Whatever a user's function (a route, a mapping) or an encoding throws for one message is that message's `rejected`
 *   outcome: the others are sent.
 * - When `signal` is aborted it gives up soon and rejects. A message that the broker confirms after that is still
 *   reported as `sent`, if the sender can: it need not be sent again then.
 */
export interface Sender {
  readonly name: string;
  /**
   * Whether a failure in the middle of a batch also holds back the later messages of the same key, as `failed` and
   * `uncounted`.
   */
  readonly keepsOrder: boolean;
  /**
   * The part of the broker that a message goes to, where that can be unavailable by itself, such as a partition or a
   * host. Always the same for the same message, and cheap. Undefined: not known before it is sent. Without it, a
   * message's topic.
   */
  scopeOf?(message: Message): string | undefined;
  /**
   * Makes sure that the broker can be reached; rejects with a `TransportDownError` if not. Without it, it counts as so.
   */
  connect?(signal: AbortSignal): Promise<void>;
  send(
    messages: readonly Message[],
    settled: (index: number, outcome: Outcome) => void,
    signal: AbortSignal,
  ): Promise<void>;
  /** Of its connection. Absent where there is none to lose. */
  health?(): TransportHealth;
  /**
   * Ends its connection as soon as nothing is on its way. It connects again when something is sent. A relay closes its
   * sender when it ends.
   */
  close?(): Promise<void>;
}

/** Where a broker had a message. */
export interface Origin {
  readonly partition?: string;
  /** Its offset, or the tag of its delivery: what tells it from others there. */
  readonly offset?: string;
}

/** That a delivery came out of a box, from which its handler's own transaction takes it. */
export interface Kept {
  /** The name of the box. */
  readonly box: string;
  /** Whether it was taken out; and whether that has committed. */
  handled: boolean;
  committed: boolean;
}

/**
 * One message, handed to a consumer. It is settled exactly once, by one of the four verbs; a second one throws
 * `delivery-settled`. A delivery that is never settled (the process crashed) is delivered again.
 */
export interface Delivery {
  readonly message: Message;
  /**
   * The stream that it belongs to: a partition, where the broker has them. Order and back-pressure hold per stream.
   * Absent: the receiver has a single one.
   */
  readonly stream?: string;
  /**
   * Aborted when the broker has taken the delivery back: its connection was lost, or its partition was revoked. The
   * broker delivers the message again, perhaps to another process. Settling has no effect on the broker then, and may
   * reject. Settle it all the same when the work on it has ended: the receiver may wait for that. All deliveries of a
   * connection or of a stream share one signal, so that it costs nothing per message. Absent: the broker never takes a
   * delivery back.
   */
  readonly signal?: AbortSignal;
  /**
   * Which attempt this is: 1, and one more after each `retry()` that was the message's own failure. A delivery that
   * ends without an outcome (a crash, a lost connection, `release()`) spends none.
   */
  readonly attempt: number;
  /**
   * Whether the broker has delivered the message before without learning an outcome. That raises suspicion, since a
   * message that crashes its process leaves no other trace; it is not a failure. Defaults to false.
   */
  readonly redelivered?: boolean;
  /** Where it was, as far as the broker says. */
  readonly origin?: Origin;
  /** Of what an inbox keeps: the inbox's own affair. */
  readonly kept?: Kept;
  /** Done: never deliver it again. Call it only after everything the handler did has committed. */
  ack(): Promise<void>;
  /**
   * Failed: deliver it again after `delayMs`, as one more attempt. If the reason is not the message's fault (the inbox
   * is busy, the store is unavailable), the attempt is not counted. The reason is stored if the transport can store
   * one. Rejects and settles nothing if the receiver settles in order.
   */
  retry(delayMs: number, reason?: Error): Promise<void>;
  /**
   * Set it aside with its reason. Resolves once it is safely there. Rejects and settles nothing if the receiver settles
   * in order.
   */
  park(reason: Error): Promise<void>;
  /** Untried: give it back. No attempt is spent, and it keeps its place, as far as the broker can do both. */
  release(): Promise<void>;
}

/** What a consumer wants: deliveries of these events, handed to `deliver`. */
export interface Subscription {
  /** The consumer's name: stable, since brokers and the inbox remember it. */
  readonly consumer: string;
  /** What it has handlers for, older types that they upcast included; a transport binds queues by them. */
  readonly events: readonly Pick<EventDefinition, "type" | "topic">[];
  /**
   * Takes one delivery. The next one of the same stream is handed over when this resolves: that is the consumer's
   * back-pressure. A receiver may call it for different streams at the same time, and a stream that has to wait holds
   * up no other.
   */
  deliver(delivery: Delivery): Promise<void>;
  /**
   * To be called when it receives, each time that it does anew: whoever waits for a router's start waits for the first.
   */
  ready?(): void;
}

/**
 * Brings messages from a broker.
 *
 * - `receive` runs until `signal` is aborted, reconnecting by itself; then it hands over nothing more, waits until
 *   every delivery that it handed over is settled, and returns.
 * - Unsettled deliveries are bounded in count and bytes, per stream.
 * - Messages of one key are handed over in the broker's order, which is that of their stream.
 * - What its broker can do, it declares: `settles`, `redelivery`, `selects`. A router that needs more refuses to run on
 *   it.
 */
export interface Receiver {
  readonly name: string;
  /**
   * How its broker learns what was settled. `each`: every delivery by itself; the broker can deliver one later, and
   * park it. `in-order`: as an offset below which everything is done. Then the broker cannot retry or park, so the
   * router needs an inbox, which stores failures; and after a crash or a revocation, messages behind an unfinished one
   * are delivered again although they were acknowledged. Defaults to `each`.
   */
  readonly settles?: "each" | "in-order";
  /**
   * What its broker knows of a message that was delivered before without an outcome. `counted`: the broker counts such
   * deliveries and sets a limit to them, so that a message which crashes its process is parked in the end. `flagged`:
   * `Delivery.redelivered` is true. `unknown`: nothing; then the router needs `durableInbox(store)`, which stores a
   * message before it is handled, since otherwise a message that crashes its process would do so forever. Defaults to
   * `flagged`.
   */
  readonly redelivery?: "counted" | "flagged" | "unknown";
  /**
   * What a subscription brings. `type`: the types that it names. `topic`: everything in their topics, so a router
   * ignores types without a handler unless its option `onUnknownType` says otherwise. Defaults to `type`.
   */
  readonly selects?: "type" | "topic";
  /**
   * How long after a message was made it may still be delivered again. An inbox must remember at least that long.
   * Absent: unknown.
   */
  readonly redeliveryWindowMs?: number;
  /**
   * Whether a delivery that failed is stored where it came from, with its reason, and waits there before the later ones
   * of its key. Then an inbox leaves that to it. Defaults to false.
   */
  readonly storesFailures?: boolean;
  /**
   * Makes what the consumer needs at the broker, such as its queue with its bindings, and receives nothing: what is
   * sent from then on waits there. May be repeated. Absent where nothing has to be made.
   */
  prepare?(subscription: Pick<Subscription, "consumer" | "events">): Promise<void>;
  receive(subscription: Subscription, signal: AbortSignal): Promise<void>;
  /** Of its connection; of several runs at once, the one that is worst off. Absent where there is none to lose. */
  health?(): TransportHealth;
}
