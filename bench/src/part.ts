import type { Bar } from "./bar.js";
import type { Database } from "./database.js";
import type { Ending } from "./ending.js";
import type { Figure } from "./figure.js";
import type { Peer } from "./peers/peer.js";

/** One run of one part. */
export interface Run {
  readonly database: Database;
  readonly rounds: number;
  /** Scales a count or a duration: the full value, or a tenth of it in a quick run. */
  share(full: number): number;
  /** Returns what several benchmarks of a run share. The first call creates it. */
  once<T>(name: string, make: () => Promise<T>): Promise<T>;
  /** Returns the peers that could be installed. The first call installs them. */
  peers(): Promise<readonly Peer[]>;
  readonly ending: Ending;
}

/** Measures the figures with these names. Figures of peers have names of their own and no bar. */
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
