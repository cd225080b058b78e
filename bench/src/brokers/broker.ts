import type { Receiver, Sender } from "postbox";
import type { Ending } from "../ending.js";
import type { ReadRow } from "../outbox/by-hand.js";

/** A broker under measurement. To add one: a file that makes it, and a line in brokers.ts. */
export interface BrokerKind {
  readonly name: string;
  /** As its sender says: the bar of a hot key depends on it. */
  readonly keepsOrder: boolean;
  /** Connects, and makes one queue of this run, gone at its end. */
  open(ending: Ending): Promise<Broker>;
}

/** One queue of it: what the library has for it, and the same with nothing but its client. */
export interface Broker {
  /** The client and the server, with their versions. */
  readonly client: string;
  /** Connected already. */
  sender(): Promise<Sender>;
  receiver(): Receiver;
  /** By hand: all at once, with what the library would send along. Resolves when each is confirmed. */
  publish(rows: readonly ReadRow[]): Promise<void>;
  /** By hand: connects, acks this many, one by one, and resolves when the broker has heard of all that. */
  consume(count: number): Promise<void>;
  /** How many messages the queue has. */
  depth(): Promise<number>;
  purge(): Promise<void>;
}

/** How many deliveries are unsettled at most, on both sides: the library's default. */
export const prefetch = 100;
