import type { EventDefinition, Message, Receiver, Sender, Telemetry } from "postbox";
import type { OnUnroutable } from "postbox/memory";

/**
 * What a transport can do beyond what every transport must. Claimed features are tested; the facts of all others are
 * shown as skipped.
 */
export interface TransportFeatures {
  /** Its senders declare `keepsOrder`. */
  readonly keepsOrder: boolean;
  /** A message without a queue is reported, and never as `sent`. */
  readonly unroutable: boolean;
  /** A delivery's `attempt` is exact. Otherwise it only distinguishes the first attempt from later ones. */
  readonly exactAttempts: boolean;
  /**
   * The broker settles single deliveries: it can redeliver one later, and park it. Its receivers do not declare
   * `in-order`.
   */
  readonly settlesEach: boolean;
  /**
   * A subscription delivers the types that it names. Without this feature, it delivers their whole topics, and
   * receivers declare `topic`.
   */
  readonly selectsTypes: boolean;
  /** Receivers of one queue compete for its messages: each takes the next one as soon as it has room. */
  readonly competing: boolean;
  /** Topics are divided into streams, by `bind()` with `streams`, and the receivers of one queue share them. */
  readonly streams: boolean;
  /** Deliveries have a `signal`, which is aborted when the broker revokes them. */
  readonly revokes: boolean;
  /** `release()` does not count as an attempt. */
  readonly releaseUncounted: boolean;
  /** `receiver({ prefetch })` limits the unsettled deliveries exactly. */
  readonly prefetch: boolean;
  /** `receiver({ prefetchBytes })` limits them in bytes. */
  readonly prefetchBytes: boolean;
  /** With `singleActive`, only one receiver of a queue gets messages; the next one does when that has ended. */
  readonly singleActive: boolean;
  /** A message larger than the harness's `maxMessageBytes` is rejected. */
  readonly maxMessageBytes: boolean;
  /** Its senders accept a function of the user that decides where a message goes: `sender({ route })`. */
  readonly routes: boolean;
  /** Its senders accept a policy for messages without a queue: `sender({ onUnroutable })`. With `unroutable`. */
  readonly onUnroutable: boolean;
  /** The harness can remove a binding, with `unbind()`. */
  readonly unbinds: boolean;
  /** The harness can make one stream of a topic unavailable to senders, with `setAvailable()`. With `streams`. */
  readonly scopes: boolean;
  /** The harness can make the broker unreachable, with `down()` and `up()`. */
  readonly outage: boolean;
  /** The harness can cut a receiver's connection, with `interrupt()`; the receiver reconnects by itself. */
  readonly reconnects: boolean;
  /**
   * A lost connection revokes the deliveries that came over it. Otherwise they stay valid: the broker knows its
   * consumers by a session that outlives connections. With `reconnects`.
   */
  readonly connectionBound: boolean;
  /** Senders and receivers have a truthful `health()`. With `outage` and `reconnects`. */
  readonly health: boolean;
  /** The broker requires a password: the harness makes a sender and a receiver with a wrong one, with `intruders()`. */
  readonly passwords: boolean;
  /**
   * The harness can make a queue from which no message can be parked, with `parks: false` in `bind()` and `receiver()`.
   */
  readonly refusesParking: boolean;
  /** The harness can make the broker accept nothing for a while, with `block()` and `unblock()`. With `health`. */
  readonly blocks: boolean;
  /**
   * The harness can kill the broker and start it again, with `restart()`. It then has everything that it had confirmed.
   */
  readonly restarts: boolean;
}

interface HarnessSenderOptions {
  /**
   * With `routes`: returns where a message goes, or throws. Gets the message's id, and a function that returns the
   * default.
   */
  route?(id: string, usual: () => unknown): unknown;
  /** With `onUnroutable`. */
  readonly onUnroutable?: OnUnroutable;
}

/** What a suite asks of a receiver. */
export interface HarnessReceiverOptions {
  readonly queue: string;
  readonly prefetch?: number;
  readonly prefetchBytes?: number;
  /** With `singleActive`. */
  readonly singleActive?: boolean;
  /** With `refusesParking`: for a queue that was made this way. */
  readonly parks?: false;
}

interface HarnessBindOptions extends Pick<HarnessReceiverOptions, "singleActive" | "parks"> {
  /** With `streams`: into how many streams to divide the events' topics, which are new. Defaults to 1. */
  readonly streams?: number;
}

/** A sender and a receiver whose authentication fails. */
interface Intruders {
  /** The password that they use. */
  readonly password: string;
  readonly sender: Sender;
  readonly receiver: Receiver;
}

/**
 * One broker, and the means to do to it what only happens from outside. Names are unique per fact, so it may be shared.
 */
export interface TransportHarness {
  sender(options?: HarnessSenderOptions): Sender;
  receiver(options: HarnessReceiverOptions): Receiver;
  /** Makes a queue that gets these events from now on. */
  bind(queue: string, events: readonly EventDefinition[], options?: HarnessBindOptions): Promise<void>;
  /** Acts like a crash of this receiver's process: the broker takes back its unsettled deliveries. */
  crash(receiver: Receiver): Promise<void>;
  /** The messages that were parked from a queue. None without `settlesEach`. */
  parked(queue: string): Promise<readonly { readonly message: Message; readonly reason: string }[]>;
  /** With `maxMessageBytes`: the largest message that its senders accept. */
  readonly maxMessageBytes?: number;
  /** With `unbinds`: reverts `bind`, except for the queue. */
  unbind?(queue: string, events: readonly EventDefinition[]): Promise<void>;
  /** With `scopes`: sets whether senders reach this stream of a topic, named as in its deliveries. */
  setAvailable?(topic: string, stream: string, available: boolean): Promise<void>;
  /** With `outage`: makes the broker unreachable for senders. */
  down?(): Promise<void>;
  up?(): Promise<void>;
  /** With `reconnects`: cuts the connection of this receiver. */
  interrupt?(receiver: Receiver): Promise<void>;
  /** With `passwords`: a sender and a receiver with a wrong one, which report their events to `telemetry`. */
  intruders?(queue: string, telemetry: Telemetry): Intruders;
  /** With `blocks`: the broker accepts nothing any more. */
  block?(): Promise<void>;
  unblock?(): Promise<void>;
  /** With `restarts`: kills the broker, and resolves when it is running again. */
  restart?(): Promise<void>;
  close(): Promise<void>;
}

/** Options of `transportSuite`. */
export interface TransportSuiteOptions {
  readonly name: string;
  readonly features: TransportFeatures;
  /** Called for every fact. */
  create(): Promise<TransportHarness>;
}
