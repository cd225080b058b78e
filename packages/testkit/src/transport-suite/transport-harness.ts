import type { EventDefinition, Message, Receiver, Sender, Telemetry } from "postbox";
import type { OnUnroutable } from "postbox/memory";

/** What a transport can do beyond what every transport must. A claimed one is tested, any other is shown as skipped. */
export interface TransportFeatures {
  /** Its senders declare `keepsOrder`. */
  readonly keepsOrder: boolean;
  /** A message that no queue wants is reported, never `sent`. */
  readonly unroutable: boolean;
  /** A delivery's `attempt` is exact, where others only tell the first from later ones. */
  readonly exactAttempts: boolean;
  /**
   * The broker settles each delivery by itself: it can deliver one later, and park it. Its receivers do not declare
   * `in-order`.
   */
  readonly settlesEach: boolean;
  /**
   * A subscription brings the types that it names. Without it, it brings their whole topics, and receivers declare
   * `topic`.
   */
  readonly selectsTypes: boolean;
  /** Receivers of one queue compete for its messages: each takes the next one as soon as it has room. */
  readonly competing: boolean;
  /** Topics are divided into streams, with `bind()` that has `streams`, and the receivers of one queue share them. */
  readonly streams: boolean;
  /** Deliveries have a `signal`, which is aborted when the broker takes them back. */
  readonly revokes: boolean;
  /** `release()` does not count as an attempt. */
  readonly releaseUncounted: boolean;
  /** `receiver({ prefetch })` bounds the unsettled deliveries exactly. */
  readonly prefetch: boolean;
  /** `receiver({ prefetchBytes })` bounds them in bytes. */
  readonly prefetchBytes: boolean;
  /**
   * Receivers of one queue with `singleActive` take turns: the next one gets messages only when the one before is gone.
   */
  readonly singleActive: boolean;
  /** A message beyond the harness's `maxMessageBytes` is rejected. */
  readonly maxMessageBytes: boolean;
  /** Its senders take a function of the user that says where a message goes: `sender({ route })`. */
  readonly routes: boolean;
  /** Its senders take what becomes of a message that no queue wants: `sender({ onUnroutable })`. With `unroutable`. */
  readonly onUnroutable: boolean;
  /** The harness can take a binding away, with `unbind()`. */
  readonly unbinds: boolean;
  /** The harness can make one stream of a topic unavailable to senders, with `setAvailable()`. With `streams`. */
  readonly scopes: boolean;
  /** The harness can take the broker away, with `down()` and `up()`. */
  readonly outage: boolean;
  /** The harness can cut a receiver's connection, with `interrupt()`; it makes another one by itself. */
  readonly reconnects: boolean;
  /** Senders and receivers have `health()`, which tells the truth. With `outage` and `reconnects`. */
  readonly health: boolean;
  /** It asks for a password: the harness has ends with a wrong one, with `intruders()`. */
  readonly passwords: boolean;
  /**
   * The harness can make a queue from which nothing can be parked, with `bind()` and `receiver()` that have `parks:
   * false`.
   */
  readonly refusesParking: boolean;
  /** The harness can let the broker take nothing for a while, with `block()` and `unblock()`. With `health`. */
  readonly blocks: boolean;
  /** The harness can kill the broker and start it again, with `restart()`; it has then what it had confirmed. */
  readonly restarts: boolean;
}

interface HarnessSenderOptions {
  /**
   * With `routes`: where a message goes is what this answers, or throws. It is given the message's id, and what is
   * usual.
   */
  route?(id: string, usual: () => unknown): unknown;
  /** With `onUnroutable`. */
  readonly onUnroutable?: OnUnroutable;
}

export interface HarnessReceiverOptions {
  readonly queue: string;
  readonly prefetch?: number;
  readonly prefetchBytes?: number;
  /** Where that is claimed. */
  readonly singleActive?: boolean;
  /** Where `refusesParking` is claimed: of a queue that was made so. */
  readonly parks?: false;
}

interface HarnessBindOptions extends Pick<HarnessReceiverOptions, "singleActive" | "parks"> {
  /** With `streams`: into how many the topics of the events are divided, which are new. Defaults to 1. */
  readonly streams?: number;
}

/** A sender and a receiver whom the broker does not let in. */
interface Intruders {
  /** What they say it is. */
  readonly password: string;
  readonly sender: Sender;
  readonly receiver: Receiver;
}

/**
 * One broker, and the means to do to it what only happens from outside. Names are unique per fact: it may be shared.
 */
export interface TransportHarness {
  sender(options?: HarnessSenderOptions): Sender;
  receiver(options: HarnessReceiverOptions): Receiver;
  /** Makes a queue that gets these events from now on. */
  bind(queue: string, events: readonly EventDefinition[], options?: HarnessBindOptions): Promise<void>;
  /** As when the process of this receiver dies: the broker takes back what it has not settled. */
  crash(receiver: Receiver): Promise<void>;
  /** What was parked from a queue. Nothing, without `settlesEach`. */
  parked(queue: string): Promise<readonly { readonly message: Message; readonly reason: string }[]>;
  /** With `maxMessageBytes`: what its senders take. */
  readonly maxMessageBytes?: number;
  /** With `unbinds`: takes back what `bind` did, but for the queue. */
  unbind?(queue: string, events: readonly EventDefinition[]): Promise<void>;
  /** With `scopes`: whether senders reach this stream of a topic, as its deliveries name it. */
  setAvailable?(topic: string, stream: string, available: boolean): Promise<void>;
  /** With `outage`: makes the broker unreachable for senders. */
  down?(): Promise<void>;
  up?(): Promise<void>;
  /** With `reconnects`: cuts the connection of this receiver. */
  interrupt?(receiver: Receiver): Promise<void>;
  /** With `passwords`: ends with a wrong one, which tell `telemetry` what happens to them. */
  intruders?(queue: string, telemetry: Telemetry): Intruders;
  /** With `blocks`: the broker takes nothing any more. */
  block?(): Promise<void>;
  unblock?(): Promise<void>;
  /** With `restarts`: kills the broker, and resolves when it is back. */
  restart?(): Promise<void>;
  close(): Promise<void>;
}

export interface TransportSuiteOptions {
  readonly name: string;
  readonly features: TransportFeatures;
  /** Called for every fact. */
  create(): Promise<TransportHarness>;
}
