import { types } from "node:util";
import type {
  AuditOptions,
  BoxOption,
  ChangeOptions,
  DiscardSelection,
  DryRunOptions,
  ListOptions,
  MessageFilter,
  Operator,
  PurgeOptions,
  ReplayOptions,
  RetrySelection,
  Selection,
  StatsOptions,
  Status,
} from "../admin.js";
import { ConfigError, PostboxError } from "../errors.js";
import { callback, checkOptions, count, flag, type OptionRule, oneOf, positive, signal } from "../options.js";
import { type ChangeBounds, readConfirmToken } from "./confirm-token.js";
import { type PageCursor, readPageCursor } from "./page-cursor.js";

/*
 * Validates what operators pass, in the same way for every store. The functions return copies, so no getter or array of
 * the caller can change after validation.
 */

/** In the order in which they are listed. */
export const statuses: readonly Status[] = ["pending", "waiting", "scheduled", "parked", "done"];

/** How many failed attempts of a message are stored. */
export const keptFailures = 20;

const mostIds = 1000;
const mostPerPage = 1000;
const usualPerChange = 10_000;
const mostPerChange = 1_000_000;
const mostCharacters = 8192;
export const centuryMs = 100 * 365 * 24 * 3_600_000;

/** Databases refuse NUL and half of a surrogate pair, and messages never contain them. */
function isText(value: unknown): value is string {
  return (
    typeof value === "string" &&
    value.length > 0 &&
    value.length <= mostCharacters &&
    !value.includes("\0") &&
    !/\p{Surrogate}/u.test(value)
  );
}

const text: OptionRule = {
  expected: `a non-empty string of at most ${mostCharacters} characters, without NUL and halves of surrogate pairs`,
  test: isText,
};
const ids: OptionRule = {
  expected: `an array of at most ${mostIds} ids, each ${text.expected}`,
  test: (value) => Array.isArray(value) && value.length <= mostIds && value.every(isText),
};
/** The range of dates that every database and JavaScript support. */
const date: OptionRule = {
  expected: "a valid Date of the years 1 to 9999",
  test(value) {
    if (!types.isDate(value)) return false;
    const time = Date.prototype.getTime.call(value);
    return time >= Date.parse("0001-01-01T00:00:00Z") && time <= Date.parse("9999-12-31T23:59:59.999Z");
  },
};
const oneStatus = oneOf(...statuses);
const someStatuses: OptionRule = {
  expected: `${oneStatus.expected}, or an array of these`,
  test: (value) => (Array.isArray(value) ? value.length > 0 && value.every(oneStatus.test) : oneStatus.test(value)),
};

export function wholeUpTo(most: number, least = 1): OptionRule {
  return {
    expected: `a whole number from ${least} to ${most}`,
    test: (value) => Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most,
  };
}

export const boxRules = { box: text };
const filterRules = {
  ids,
  type: text,
  topic: text,
  key: text,
  source: text,
  correlationId: text,
  createdFrom: date,
  createdBefore: date,
  minAttempts: wholeUpTo(0x7fffffff, 0),
  error: text,
};
const operatorRules = { by: text, reason: text };

/**
 * Validates a copy of the options and returns it. Anything that a hostile object throws while it is read counts as
 * invalid input.
 */
export function checked<T extends object>(
  owner: string,
  options: T,
  rules: Readonly<Record<string, OptionRule>>,
  required: readonly string[] = [],
): T {
  try {
    if (typeof options !== "object" || options === null || Array.isArray(options)) {
      throw new ConfigError("option-invalid", `${owner}: give an object; got ${kindOf(options)}`);
    }
    const copy = Object.fromEntries(
      Object.entries(options).flatMap(([name, value]) => (value === undefined ? [] : [[name, copyOf(value)]])),
    );
    checkOptions(owner, copy, rules, required);
    return copy as T;
  } catch (cause) {
    if (cause instanceof PostboxError) throw cause;
    throw new ConfigError("option-invalid", `${owner}: the options cannot be read; give a plain object`, { cause });
  }
}

function kindOf(value: unknown): string {
  return Array.isArray(value) ? "an array" : value === null ? "null" : typeof value;
}

function copyOf(value: unknown): unknown {
  if (types.isDate(value)) return new Date(Date.prototype.getTime.call(value));
  // Reads at most one element more than allowed, which is enough to refuse an array of any length.
  if (Array.isArray(value)) return Array.from({ length: Math.min(value.length, mostIds + 1) }, (_, at) => value[at]);
  return value;
}

function filterOf(given: MessageFilter): MessageFilter {
  return Object.fromEntries(Object.entries(given).filter(([name]) => Object.hasOwn(filterRules, name)));
}

/** Who changes something and why, checked. */
export interface CheckedOperator {
  readonly box: string;
  readonly by: string;
  readonly reason?: string;
}

const defaultBox = "outbox";

export function checkStats(options: StatsOptions = {}): Required<StatsOptions> {
  const { box = defaultBox, done = false } = checked("admin.stats", options, { ...boxRules, done: flag });
  return { box, done };
}

export interface CheckedList {
  readonly box: string;
  readonly filter: MessageFilter;
  /** Each once, in the order in which they are listed. */
  readonly statuses: readonly Status[];
  readonly limit: number;
  readonly after?: PageCursor;
}

export function checkList(options: ListOptions = {}): CheckedList {
  const rules = { ...filterRules, ...boxRules, status: someStatuses, limit: wholeUpTo(mostPerPage), after: text };
  const given = checked("admin.list", options, rules);
  const { box = defaultBox, limit = 50, after } = given;
  // In an inbox, `done` is everything handled, possibly for weeks.
  const usual = box === defaultBox ? statuses : statuses.filter((each) => each !== "done");
  const { status = usual } = given;
  const asked = statuses.filter((each) => (typeof status === "string" ? status === each : status.includes(each)));
  const list = { box, filter: filterOf(given), statuses: asked, limit };
  return after === undefined ? list : { ...list, after: readPageCursor(after, asked) };
}

export function checkGet(id: string, options: BoxOption = {}): { readonly id: string; readonly box: string } {
  checked("admin.get", { id }, { id: text }, ["id"]);
  const { box = defaultBox } = checked("admin.get", options, boxRules);
  return { id, box };
}

/** The options of `admin.audit`, checked and with their defaults. */
export interface CheckedAudit {
  /** Absent for all boxes. */
  readonly box?: string;
  readonly limit: number;
  readonly before?: number;
}

export function checkAudit(options: AuditOptions = {}): CheckedAudit {
  const rules = { ...boxRules, limit: wholeUpTo(mostPerPage), before: count };
  return { limit: 50, ...checked("admin.audit", options, rules) };
}

/** Removes control characters from actor and reason: an audit is read on terminals, which would interpret them. */
function printable<T extends Operator>({ by, reason, ...rest }: T) {
  const clean = (given: string) => given.replace(/\p{Cc}/gu, " ");
  return { ...rest, by: clean(by), ...(reason !== undefined && { reason: clean(reason) }) };
}

/** For pause and resume. */
export function checkOperator(method: "pause" | "resume", options: Operator & BoxOption): CheckedOperator {
  const given = checked(`admin.${method}`, options, { ...operatorRules, ...boxRules }, ["by"]);
  return { box: defaultBox, ...printable(given) };
}

export function checkRelease(key: string, options: Operator & BoxOption): CheckedOperator & { readonly key: string } {
  checked("admin.release", { key }, { key: text }, ["key"]);
  const given = checked("admin.release", options, { ...operatorRules, ...boxRules }, ["by"]);
  return { box: defaultBox, ...printable(given), key };
}

/** A change that an operator makes to messages. */
export type ChangeAction = "retry" | "discard" | "replay";

/** The messages that a change, or its dry run, selects. */
export interface CheckedSelection {
  readonly action: ChangeAction;
  readonly box: string;
  /** The status that it selects from. */
  readonly status: Status;
  readonly filter: MessageFilter;
  /** The selection without its box, in a canonical form, for the audit and the token. */
  readonly selection: Readonly<Record<string, unknown>>;
}

export interface CheckedDryRun extends CheckedSelection {
  /** The first messages by position, at most this many. */
  readonly limit: number;
}

export interface CheckedChange extends CheckedSelection {
  readonly by: string;
  readonly reason?: string;
  /**
   * What the change may touch, in order of position. Unlimited for ids without a dry run; then the store must not touch
   * rows that appear meanwhile.
   */
  readonly bounds: ChangeBounds;
  /** The token that confirmed it. */
  readonly confirm?: string;
  /** Only for a replay. */
  readonly perSecond?: number;
  readonly signal?: AbortSignal;
  readonly onBatch?: (changed: number) => void;
}

const unbounded = Number.MAX_SAFE_INTEGER;
const everything: ChangeBounds = { most: unbounded, upTo: unbounded, until: unbounded };

/** The default status of each change. */
const origins = { retry: "parked", replay: "done", discard: "parked" } as const;

/** The statuses that can be chosen, for the actions that allow a choice. */
const changeable: Readonly<Record<ChangeAction, readonly Status[] | undefined>> = {
  retry: ["parked", "waiting", "pending"],
  discard: statuses.filter((each) => each !== "done"),
  replay: undefined,
};

export function checkDryRun(
  action: ChangeAction,
  selection: Selection | DiscardSelection | RetrySelection,
  options: DryRunOptions = {},
): CheckedDryRun {
  checked("admin.dryRun", { action }, { action: oneOf("retry", "discard", "replay") }, ["action"]);
  const { limit = usualPerChange } = checked("admin.dryRun", options, { limit: wholeUpTo(mostPerChange) });
  return { ...checkSelection("admin.dryRun", action, selection), limit };
}

export function checkChange(
  action: ChangeAction,
  selection: Selection | DiscardSelection | RetrySelection,
  options: ChangeOptions | ReplayOptions,
): CheckedChange {
  const owner = `admin.${action}`;
  const about = checkSelection(owner, action, selection);
  const all = { ...operatorRules, confirm: text, signal, onBatch: callback };
  const rules: Readonly<Record<string, OptionRule>> = action === "replay" ? { ...all, perSecond: positive } : all;
  const { confirm, ...rest } = printable(checked<ReplayOptions>(owner, options, rules, ["by"]));
  if (confirm !== undefined) return { ...about, ...rest, confirm, bounds: readConfirmToken(confirm, about) };
  if (about.filter.ids !== undefined) return { ...about, ...rest, bounds: everything };
  throw new ConfigError(
    "option-invalid",
    `${owner}: option 'confirm' is missing, and without 'ids' it is unknown how many messages this changes; ` +
      `make a dry run, admin.dryRun("${action}", selection), and give its 'confirm'`,
    { path: "confirm" },
  );
}

function checkSelection(
  owner: string,
  action: ChangeAction,
  given: Selection | DiscardSelection | RetrySelection,
): CheckedSelection {
  const status = changeable[action];
  const rules = { ...filterRules, ...boxRules, ...(status && { status: oneOf(...status) }) };
  const selection: DiscardSelection = checked<DiscardSelection>(owner, given, rules);
  const { box = defaultBox } = selection;
  if (action === "replay" && box !== defaultBox) {
    throw new ConfigError(
      "option-invalid",
      `${owner}: '${box}' keeps nothing that was handled; replay it from the outbox that sent it`,
      { path: "box" },
    );
  }
  const filter = filterOf(selection);
  const from = selection.status ?? origins[action];
  return { action, box, status: from, filter, selection: canonical({ ...filter, status: from }) };
}

function canonical(selection: MessageFilter & { readonly status: Status }): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    Object.entries(selection)
      .map(([name, value]): [string, unknown] => {
        if (Array.isArray(value)) return [name, [...new Set(value)].sort()];
        return [name, value instanceof Date ? value.toISOString() : value];
      })
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  );
}

export interface CheckedPurge extends PurgeOptions {
  readonly box: string;
}

/**
 * `own` are the rules of options that only this store has.
 *
 * @example
 * ```ts
 * const { retentionMs } = checkPurge({ retentionMs: 86_400_000 });
 * ```
 */
export function checkPurge<O extends PurgeOptions>(
  options: O,
  own: Readonly<Record<string, OptionRule>> = {},
): O & CheckedPurge {
  const retention: OptionRule = {
    expected: "a number of milliseconds from 0 to a hundred years",
    test: (value) => typeof value === "number" && value >= 0 && value <= centuryMs,
  };
  const rules = { ...boxRules, retentionMs: retention, archive: callback, signal, ...own };
  return { box: defaultBox, ...checked("store.purge", options, rules, ["retentionMs"]) };
}
