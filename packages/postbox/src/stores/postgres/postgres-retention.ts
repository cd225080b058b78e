import type { ClientBase } from "pg";
import type { Purged, PurgeOptions } from "../../admin.js";
import { PostboxError } from "../../errors.js";
import { flag } from "../../options.js";
import type { TransactionLibrary } from "../../store.js";
import { sqlState } from "../../transactions/sql-state.js";
import { checkPurge } from "../admin-options.js";
import type { BoxFinder } from "./box-numbers.js";
import { PartitionPurge } from "./purge-partitions.js";
import { PurgeRun } from "./purge-run.js";
import type { StatementRunner } from "./run-statement.js";
import { type SchemaCheck, schemaError } from "./schema-check.js";

const insufficientPrivilege = "42501";

export interface PostgresPurgeOptions extends PurgeOptions {
  /**
   * Whether to create and drop partitions, which only the owner of the tables may do. If false, sent messages are
   * deleted in small batches, wherever they are. Defaults to true.
   */
  readonly partitions?: boolean;
}

/** What `purge` deleted, with the weeks of remembered ids that it dropped. */
export interface PostgresPurged extends Purged {
  readonly partitionsMade: number;
  readonly partitionsDropped: number;
}

/** The rules of options that only this store has. */
export const purgeRules = { partitions: flag };

/** `Store.purge` in PostgreSQL. It works in steps and may stop after any of them; the next call continues. */
export function postgresRetention(
  schema: string,
  boxes: BoxFinder,
  run: StatementRunner,
  onPool: TransactionLibrary<ClientBase>,
  checkSchema: SchemaCheck,
): (options: PostgresPurgeOptions) => Promise<PostgresPurged> {
  return async (options) => {
    const { partitions = true, ...checked } = checkPurge(options, purgeRules);
    const t = await boxes.existing(checked.box);
    const purge = new PurgeRun(t, checked, run, onPool);
    const done = new PartitionPurge(purge, schema);
    const purged = (busy: boolean): PostgresPurged => ({
      busy,
      removed: purge.removed,
      partitionsMade: done.made,
      partitionsDropped: done.dropped,
    });
    try {
      await checkSchema(run);
      if (!(await purge.mayGoOn())) return purged(!checked.signal?.aborted);
      try {
        if (t.consumer !== undefined) await purge.cleanMemory();
        else {
          // First the steps that need no right except DELETE.
          await purge.cleanRows(t.overflow);
          if (partitions) await done.clean();
          else await done.cleanByRow();
        }
      } finally {
        await purge.end();
      }
      return purged(false);
    } catch (thrown) {
      throw purgeError(schemaError(thrown, schema), checked.box);
    }
  };
}

function purgeError(error: unknown, box: string): unknown {
  const state = sqlState(error);
  if (error instanceof PostboxError || state === undefined) return error;
  const advice =
    state === insufficientPrivilege
      ? "; only the owner of the tables may create, drop and empty partitions; a role with the right to delete needs " +
        "partitions: false"
      : "";
  return new PostboxError(
    "store-failed",
    `could not clean the box ${box} in Postgres: ${(error as Error).message}${advice}`,
    {
      cause: error,
    },
  );
}
