import type {
  Admin,
  AuditEntry,
  BoxStats,
  MessageFilter,
  Status,
  StoredMessage,
  StoredMessageDetails,
} from "../admin.js";
import type { Runtime } from "../internal/runtime.js";
import {
  type CheckedAudit,
  type CheckedChange,
  type CheckedOperator,
  type CheckedSelection,
  checkAudit,
  checkChange,
  checkDryRun,
  checkGet,
  checkList,
  checkOperator,
  checkRelease,
  checkStats,
  statuses,
} from "./admin-options.js";
import { type ChangedStep, type ChangeStep, changeInBatches } from "./change-batches.js";
import { writeConfirmToken } from "./confirm-token.js";
import { writePageCursor } from "./page-cursor.js";

/** Which messages of a status to list. */
export interface PageOf {
  readonly status: Status;
  readonly filter: MessageFilter;
  /** Only positions below this one. Defaults to all. */
  readonly before?: number;
  readonly limit: number;
}

/** Reads of one box. */
export interface BoxView {
  /** The matching messages, highest positions first. */
  page(of: PageOf): Promise<readonly StoredMessage[]>;
  /** Messages with this id, up to a thousand, highest positions first. */
  details(status: Status, id: string): Promise<readonly StoredMessageDetails[]>;
}

/** How far a selection reaches at this moment. */
export interface Reach {
  /** How many match, at most one more than the limit. */
  readonly count: number;
  /** The position of the last match within the limit; 0 if there is none. */
  readonly upTo: number;
  /** Identifies this moment. Passed to a change, it excludes rows that reached the status later. */
  readonly until: number;
}

/** What one step of a change may touch. */
export type BoundedStep = ChangeStep & Pick<CheckedChange["bounds"], "until">;

/**
 * The administration that each store implements. Each verb is one transaction on a box. A box exists once it has been
 * used; for any other name, a verb throws a `ConfigError` and creates no box.
 */
export interface AdminPrimitives {
  readonly runtime: Runtime;
  boxes(): Promise<readonly string[]>;
  stats(box: string, withDone: boolean): Promise<BoxStats>;
  /** Runs all reads of `work` in one transaction. */
  look<R>(box: string, work: (view: BoxView) => Promise<R>): Promise<R>;
  /** The latest entries, newest first. */
  audit(asked: CheckedAudit): Promise<readonly AuditEntry[]>;
  /** The reach of the first `limit` rows of a selection, by position. A replay counts each id once. */
  reach(selection: CheckedSelection, limit: number): Promise<Reach>;
  /** Changes the first rows of a selection within the step's bounds, with one audit entry if there are any. */
  change(change: CheckedChange, step: BoundedStep): Promise<ChangedStep>;
  /** Writes an audit entry, unless nothing changes. */
  setPaused(paused: boolean, operator: CheckedOperator): Promise<void>;
  /** Writes an audit entry. Returns false if the key is not held. */
  release(key: string, operator: CheckedOperator): Promise<boolean>;
}

/** More messages than a box has. */
const all = 0x7ffffffe;

/**
 * Builds `Store.admin` on the store's own verbs. Options, pages, dry runs and batches are the same for all stores.
 *
 * @example
 * ```ts
 * const admin = createAdmin(primitives);
 * await admin.list({ status: "parked" });
 * ```
 */
export function createAdmin(store: AdminPrimitives): Admin {
  async function change(checked: CheckedChange) {
    const { filter, bounds } = checked;
    // Excludes messages that get one of these ids later, by a replay.
    const upTo = filter.ids === undefined ? bounds.upTo : Math.min(bounds.upTo, (await store.reach(checked, all)).upTo);
    return changeInBatches({ ...checked, bounds: { ...bounds, upTo } }, store.runtime, (step) =>
      store.change(checked, { ...step, until: bounds.until }),
    );
  }

  return {
    async stats(options) {
      const { box, done } = checkStats(options);
      return store.stats(box, done);
    },

    async list(options) {
      const { box, filter, limit, after, ...asked } = checkList(options);
      const from = after === undefined ? 0 : asked.statuses.indexOf(after.status);
      const found = await store.look(box, async (view) => {
        const listed: StoredMessage[] = [];
        for (const status of asked.statuses.slice(from)) {
          const before = after?.status === status ? { before: after.position } : {};
          // One more message shows whether there is another page.
          listed.push(...(await view.page({ status, filter, ...before, limit: limit - listed.length + 1 })));
          if (listed.length > limit) break;
        }
        return listed;
      });
      const messages = found.slice(0, limit);
      const last = messages.at(-1);
      return last === undefined || found.length <= limit ? { messages } : { messages, next: writePageCursor(last) };
    },

    async get(givenId, options) {
      const { id, box } = checkGet(givenId, options);
      return store.look(box, async (view) => {
        const found: StoredMessageDetails[] = [];
        for (const status of statuses) found.push(...(await view.details(status, id)));
        return found;
      });
    },

    boxes: () => store.boxes(),
    audit: async (options) => store.audit(checkAudit(options)),

    async dryRun(action: CheckedSelection["action"], selection: object, options?: object) {
      const checked = checkDryRun(action, selection, options);
      const { count, upTo, until } = await store.reach(checked, checked.limit);
      const most = Math.min(count, checked.limit);
      return { count: most, more: count > most, confirm: writeConfirmToken(checked, { most, upTo, until }) };
    },

    retry: async (selection, options) => change(checkChange("retry", selection, options)),
    discard: async (selection, options) => change(checkChange("discard", selection, options)),
    replay: async (selection, options) => change({ perSecond: 1000, ...checkChange("replay", selection, options) }),

    pause: async (options) => store.setPaused(true, checkOperator("pause", options)),
    resume: async (options) => store.setPaused(false, checkOperator("resume", options)),

    async release(givenKey, options) {
      const { key, ...operator } = checkRelease(givenKey, options);
      return store.release(key, operator);
    },
  };
}
