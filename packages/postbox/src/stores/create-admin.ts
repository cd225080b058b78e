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

/** What of a status to list. */
export interface PageOf {
  readonly status: Status;
  readonly filter: MessageFilter;
  /** Only positions below this one. Defaults to all. */
  readonly before?: number;
  readonly limit: number;
}

/** Reads a box. */
export interface BoxView {
  /** Those that fit, the highest positions first. */
  page(of: PageOf): Promise<readonly StoredMessage[]>;
  /** Those with this id, up to a thousand, the highest positions first. */
  details(status: Status, id: string): Promise<readonly StoredMessageDetails[]>;
}

/** How far a selection reaches at this moment. */
export interface Reach {
  /** How many fit, at most one more than was asked for. */
  readonly count: number;
  /** The position of the last one that was asked for; 0 if none fits. */
  readonly upTo: number;
  /** Stands for this moment: given back with a change, it leaves out what has come to the status since. */
  readonly until: number;
}

/** What a change is to touch in one step. */
export type BoundedStep = ChangeStep & Pick<CheckedChange["bounds"], "until">;

/**
 * What a store does for its operators. Each verb is one transaction on a box. A box exists once it has been used: a verb that
 * names another one throws a `ConfigError` and makes none.
 */
export interface AdminPrimitives {
  readonly runtime: Runtime;
  boxes(): Promise<readonly string[]>;
  stats(box: string, withDone: boolean): Promise<BoxStats>;
  /** Everything that `work` reads, in one transaction. */
  look<R>(box: string, work: (view: BoxView) => Promise<R>): Promise<R>;
  /** The latest entries, the latest first. */
  audit(asked: CheckedAudit): Promise<readonly AuditEntry[]>;
  /** Of the first `limit` of a selection, in order of position. A replay counts each id once. */
  reach(selection: CheckedSelection, limit: number): Promise<Reach>;
  /** Changes the first rows of a selection within the step's bounds, with one entry in the audit if there are any. */
  change(change: CheckedChange, step: BoundedStep): Promise<ChangedStep>;
  /** With an entry in the audit, unless it is so already. */
  setPaused(paused: boolean, operator: CheckedOperator): Promise<void>;
  /** With an entry in the audit. False: the key is not held. */
  release(key: string, operator: CheckedOperator): Promise<boolean>;
}

/** More than a box has. */
const all = 0x7ffffffe;

/** The operator's side of a store, over what the store does itself: options, pages, dry runs and batches are the same for all. */
export function createAdmin(store: AdminPrimitives): Admin {
  async function change(checked: CheckedChange) {
    const { filter, bounds } = checked;
    // A message that gets one of these ids later, by a replay, is not meant.
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
          // One more tells whether there is another page.
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
