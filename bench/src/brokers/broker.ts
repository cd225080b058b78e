import type { Receiver, Sender } from "postbox";
import type { Ending } from "../ending.js";
import type { ReadRow } from "../outbox/by-hand.js";

/** A broker under measurement. To add one, write a file that implements this and add a line to brokers.ts. */
export interface BrokerKind {
  readonly name: string;
  /** The sender's `keepsOrder`; the bar for a hot key depends on it. */
  readonly keepsOrder: boolean;
  /** Connects and creates a queue for this run. The queue is deleted when the run ends. */
  open(ending: Ending): Promise<Broker>;
}

/** One queue of the broker, used both through the library and through the bare client. */
export interface Broker {
  /** The client and the server, with their versions. */
  readonly client: string;
  /** Resolves to a sender that is already connected. */
  sender(): Promise<Sender>;
  receiver(): Receiver;
  /**
   * Bare side: publishes all rows at once, with the properties that the library would send. Resolves when every one is
   * confirmed.
   */
  publish(rows: readonly ReadRow[]): Promise<void>;
  /** Bare side: connects, acks `count` deliveries one by one, and resolves when the broker has processed all acks. */
  consume(count: number): Promise<void>;
  /** The number of messages in the queue. */
  depth(): Promise<number>;
  purge(): Promise<void>;
}

/** The most unsettled deliveries at a time, on both sides. This is the library's default. */
export const prefetch = 100;
