import type { Line } from "../latency.js";

/**
 * Another library that delivers what a transaction wrote, configured as its own documentation advises. Its handlers do
 * nothing. Peers are job queues that track each message, not relays; what else they do is not measured.
 */
export interface Peer {
  readonly name: string;
  readonly version: string;
  /** Its settings, for the reader of the report. */
  readonly settings: string;
  /** How many rows it drains in a round. A slow peer gets few rows; fewer rows are easier for it. */
  readonly drainRows: number;
  /** How many messages its latency is sampled from. A peer that waits for a timer gets few. */
  readonly latencySamples: number;
  /** Empties its tables first. */
  fill(rows: number): Promise<void>;
  /** Drains the rows. Returns the seconds from its start to the last call of its handler. */
  drain(rows: number): Promise<number>;
  /** Empties its tables and starts to handle messages one at a time. */
  open(called: () => void): Promise<Line>;
}
