import type { Bar } from "./bar.js";
import type { Database } from "./database.js";
import type { Ending } from "./ending.js";
import type { Figure } from "./figure.js";
import type { Peer } from "./peers/peer.js";

/** One run of one part, as its benchmarks see it. */
export interface Run {
  readonly database: Database;
  readonly rounds: number;
  /** As much as this run takes of a count or a time: all of it, or less when it has to be quick. */
  share(full: number): number;
  /** What several benchmarks of a run share: made by the first that asks for it. */
  once<T>(name: string, make: () => Promise<T>): Promise<T>;
  /** The peers that could be installed; the first call installs them. */
  peers(): Promise<readonly Peer[]>;
  readonly ending: Ending;
}

/** Measures what is told under some names. Peers beside them have names of their own, without a bar. */
export interface Benchmark {
  readonly names: readonly string[];
  measure(run: Run): Promise<readonly Figure[]>;
}

/** What `npm run bench -- <name>` runs. */
export interface Part {
  readonly name: string;
  readonly bars: Readonly<Record<string, Bar>>;
  readonly benchmarks: readonly Benchmark[];
}
