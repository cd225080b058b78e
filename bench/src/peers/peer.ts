import type { Line } from "../latency.js";

/**
 * Another library that hands on what was written in a transaction, configured as its own documentation advises. Its
 * handlers do nothing. They are queues with books per message, not relays: what they do more is not measured.
 */
export interface Peer {
  readonly name: string;
  readonly version: string;
  /** How it is set up, for the reader. */
  readonly settings: string;
  /** How many rows it drains in a round: few where it is slow, and less is easier for it. */
  readonly drainRows: number;
  /** How many messages its latency is taken from: few where each waits for a timer. */
  readonly latencySamples: number;
  /** Empties its tables first. */
  fill(rows: number): Promise<void>;
  /** Drains what was filled, from its start to the last call of its handler; the seconds that it took. */
  drain(rows: number): Promise<number>;
  /** Empties its tables, and starts to handle one message at a time. */
  open(called: () => void): Promise<Line>;
}
