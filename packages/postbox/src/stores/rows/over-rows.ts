import type { Health, HealthOptions } from "../../health.js";
import type { Runtime } from "../../internal/runtime.js";
import type { Box, Store } from "../../store.js";
import { requireBox } from "../box-names.js";
import { boxProblems, healthOf } from "../box-problems.js";
import { checkHealth } from "../health-options.js";
import { sightOf } from "./box-figures.js";
import { rowsAdmin } from "./rows-admin.js";
import { rowsPurge } from "./rows-purge.js";
import type { StoreRows } from "./store-rows.js";

/** How a store reads and changes its rows. */
export interface RowsAccess {
  readonly runtime: Runtime;
  /** Whether messages appear in the order of their positions. */
  readonly inCommitOrder: boolean;
  /** Reads committed data and changes nothing. Waits for no transaction. */
  read<R>(look: (rows: StoreRows) => R): Promise<R>;
  /** Changes the rows in a transaction of its own. If `work` throws or the commit fails, nothing has changed. */
  change<R>(work: (rows: StoreRows) => R, signal?: AbortSignal): Promise<R>;
  /**
   * Whether an error means that the rows could not be read, or a commit not be written, because their storage does not
   * answer.
   */
  isUnavailable(error: unknown): boolean;
}

/** The verbs of a store that `storeOverRows` makes. */
export interface VerbsOverRows extends Pick<Store, "admin" | "box" | "purge"> {
  health(options?: HealthOptions): Promise<Health>;
}

/**
 * The verbs of a store outside of a user's transaction. Create it once for the same rows, because purges take turns by
 * it.
 *
 * @example
 * ```ts
 * const verbs = storeOverRows(access);
 * await verbs.box("outbox").read([]);
 * ```
 */
export function storeOverRows(access: RowsAccess): VerbsOverRows {
  return {
    admin: rowsAdmin(access),
    box: (name) => boxOverRows(access, name),
    purge: rowsPurge(access),

    async health(options) {
      const limits = checkHealth(options);
      try {
        return await access.read((rows) => {
          const names = limits.box === undefined ? rows.boxNames() : [limits.box];
          return healthOf(names.flatMap((name) => boxProblems(name, sightOf(rows.used(name)), limits)));
        });
      } catch (error) {
        if (!access.isUnavailable(error)) throw error;
        return healthOf([{ code: "unreachable", severity: "error", timedOut: false, text: (error as Error).message }]);
      }
    },
  };
}

function boxOverRows({ inCommitOrder, read, change }: RowsAccess, name: string): Box {
  requireBox(name);
  return {
    inCommitOrder,
    renew: (owner, leaseMs, order, signal) => change((rows) => rows.box(name).renew(owner, leaseMs, order), signal),
    own: (owner, most, options, signal) => change((rows) => rows.box(name).own(owner, most, options), signal),
    release: (owner, lanes, signal) => change((rows) => rows.box(name).owners.release(owner, lanes), signal),
    read: (lanes, options) => read((rows) => rows.look(name).read(lanes, options)),
    due: (lanes, options) => read((rows) => rows.look(name).due(lanes, options)),
    late: (gaps, limit, options) => read((rows) => rows.look(name).late(gaps, limit, options)),
    promote: (limit, signal) => change((rows) => rows.box(name).promote(limit), signal),
    suspect: (lanes, found, signal) => change((rows) => rows.box(name).suspect(lanes, found), signal),
    settle: (lanes, settlements, options, signal) =>
      change((rows) => rows.box(name).settle(lanes, settlements, options), signal),
  };
}
