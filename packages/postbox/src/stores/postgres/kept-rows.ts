import { PostboxError } from "../../errors.js";
import { sqlState } from "../../transactions/sql-state.js";
import { openPartitionSql } from "./done-partitions.js";
import type { BoxTables } from "./names.js";
import type { KeptIn } from "./settle-sql.js";

/** How often to check for a new partition while there is none. */
const overflowMs = 60_000;

/**
 * Where a settle stores the sent rows that are kept: in the partition of today, or in the overflow table if there is
 * none. So a missing partition never fails a settle.
 */
export class KeptRows {
  readonly #look: () => Promise<readonly Readonly<Record<string, unknown>>[]>;
  /** The place, and until when that is known to be right. */
  #kept: { readonly in: KeptIn; readonly until: number } = { in: "overflow", until: 0 };

  /** `run` runs one statement. */
  constructor(
    tables: Pick<BoxTables, "done">,
    run: (text: string) => Promise<readonly Readonly<Record<string, unknown>>[]>,
  ) {
    const partition = openPartitionSql(tables);
    this.#look = () => run(partition);
  }

  /** Runs a settle that stores its sent rows in the place that it is given. */
  async settle<R>(into: (place: KeptIn) => Promise<R>): Promise<R> {
    if (performance.now() >= this.#kept.until) await this.#find();
    if (this.#kept.in === "overflow") return into("overflow");
    try {
      return await into("done");
    } catch (error) {
      // An operator has dropped the partition, or the clock was changed.
      if (!isPartitionMissing(error)) throw error;
      this.#kept = { in: "overflow", until: performance.now() + overflowMs };
      return into("overflow");
    }
  }

  async #find(): Promise<void> {
    const [found] = await this.#look();
    const [place, ms] =
      found === undefined ? (["overflow", overflowMs] as const) : (["done", Number(found.left_ms)] as const);
    this.#kept = { in: place, until: performance.now() + ms };
  }
}

/** Whether `done` has no partition for now. Its only check constraints are those of its partitions. */
function isPartitionMissing(error: unknown): boolean {
  return error instanceof PostboxError && sqlState(error.cause) === "23514";
}
