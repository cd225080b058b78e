import type { Message } from "../message/message.js";
import type { Aside, Row, Settlement, SettleOptions } from "../store.js";
import { keptFailures } from "./admin-options.js";

/*
 * What a settle means, for every store. In one transaction, a store locks the lanes' epochs, loads the rows that the
 * settlements name, computes the plan and writes it. The plan is plain data, so it requires neither stored procedures
 * nor a particular way to store a row.
 */

type MessageIdentity = Pick<Message, "id" | "key">;

/** A failed attempt. */
interface StoredFailure {
  readonly attempt: number;
  readonly at: number;
  readonly error: string;
}

/** The part of an unsent row that a settle needs. Other data that a store keeps of a row stays unchanged. */
export interface SettledRow {
  readonly lane: number;
  readonly position: number;
  readonly message: MessageIdentity;
  readonly attempts: number;
  readonly crashes: number;
  readonly error?: string;
  /** The last failed attempts, oldest first. */
  readonly failures: readonly StoredFailure[];
  /** The name of the hold that it waits under. Absent if it is in `pending`. */
  readonly hold?: string;
  /** How often an operator has put it back to its place. Defaults to 0. */
  readonly turn?: number;
  /** For a parked row: whether it holds its key. */
  readonly holds?: boolean;
}

/** Identifies a hold, which keeps the rows of a key, or a single row, from being sent before it is due. */
interface HoldName {
  readonly lane: number;
  readonly name: string;
}

/** A hold on a key, as `settlePlan` reads it. */
export interface SettledHold extends HoldName {
  /** In ms, by the database's clock. Infinity if an operator has to release it. */
  readonly dueAt: number;
  /** How many rows wait under it. A store may stop counting at one more than the rows that it loads. */
  readonly waiting: number;
}

/** What a store loads before it computes the plan. */
export interface SettleState<R extends SettledRow> {
  /**
   * The rows at the places that the settlements name, whatever their messages are. Rows that are gone are not included.
   */
  readonly rows: readonly R[];
  /** The holds that these rows, and those of the settlements, may be under; see `holdNames`. */
  readonly holds: readonly SettledHold[];
  /** The database's clock, in ms. */
  readonly now: number;
}

/** The outcome of one row. A store that keeps sent rows stores `after`. */
export interface RowWrite<R extends SettledRow> {
  readonly before: R;
  /** `pending` leaves it there. After `sent` and `dropped`, the row must not be read again. */
  readonly to: Settlement["to"];
  readonly after: R;
}

/** What a store writes. Each list names a row, or a hold, at most once. */
export interface SettlePlan<R extends SettledRow> {
  readonly rows: readonly RowWrite<R>[];
  /** Holds that are created or become due at another time. */
  readonly held: readonly Omit<SettledHold, "waiting">[];
  /** Holds that end. */
  readonly freed: readonly HoldName[];
  /** Audit entries, one per reason. */
  readonly drops: readonly { readonly reason: string; readonly ids: readonly string[] }[];
}

/** The name of the hold of a row without a key, or of one that waits alone. No key starts with U+0001. */
export function holdOfId({ id }: MessageIdentity): string {
  return `\u0001${id}`;
}

/** The name of the hold of the message's key; without a key, of the message itself. */
export function holdOfKey(message: MessageIdentity): string {
  return message.key ?? holdOfId(message);
}

/**
 * All names that a row with this message may be held under.
 *
 * @example
 * ```ts
 * const [first] = holdNames(message); // by its key, or by its id if it has none
 * ```
 */
export function holdNames(message: MessageIdentity): readonly string[] {
  return message.key === undefined ? [holdOfId(message)] : [holdOfId(message), message.key];
}

/**
 * Computes what to write for these settlements, whose lanes' epochs are current. A row matches only if its message has
 * the same id and, if it waits, its turn is the same. Any other row is skipped, so a settle whose answer was lost can
 * be repeated.
 *
 * A row that was sent from `pending` affects no other row and no hold, so a store may settle those with a separate
 * statement.
 *
 * @example
 * ```ts
 * const { rows: writes, freed } = settlePlan({ rows: settledRows, holds, now: Date.now() }, settlements);
 * ```
 */
export function settlePlan<R extends SettledRow>(
  { rows, holds, now }: SettleState<R>,
  settlements: readonly Settlement[],
  { alone = false }: Pick<SettleOptions, "alone"> = {},
): SettlePlan<R> {
  const stored = new Map(rows.map((row) => [placeOf(row, row.hold !== undefined), row]));
  const planned = plannedHolds(holds, rows, now);
  const written: RowWrite<R>[] = [];
  const dropped = new Map<string, string[]>();
  for (const settlement of settlements) {
    const { row, to } = settlement;
    const place = placeOf(row, row.waiting);
    const before = stored.get(place);
    if (before === undefined || !isSame(before, row)) {
      // Its handler may have removed the row already, but not the hold of its key.
      if (to === "sent" && row.waiting) planned.leave({ lane: row.lane, name: holdOfKey(row.message) }, 0);
      continue;
    }
    stored.delete(place);
    const { lane, hold, message } = before;
    const name = hold ?? (alone ? holdOfId(message) : holdOfKey(message));
    const isWaiting = hold !== undefined;
    const after = afterOf(before, settlement, now);
    if (to === "wait" || (to === "pending" && isWaiting)) {
      planned.wait({ lane, name }, isWaiting ? 0 : 1, to === "wait" ? settlement.retryInMs : undefined);
      written.push({ before, to: "wait", after: { ...after, hold: name } });
      continue;
    }
    written.push({ before, to, after: to === "pending" ? after : withoutHold(after) });
    if (isWaiting) planned.leave({ lane, name });
    // A parked row holds its key, whatever hold it waited under.
    if (to === "parked" && after.holds && message.key !== undefined) planned.keep({ lane, name: message.key });
    if (to === "dropped") dropped.set(settlement.reason, [...(dropped.get(settlement.reason) ?? []), row.message.id]);
  }
  return { rows: written, ...planned.changes(), drops: [...dropped].map(([reason, ids]) => ({ reason, ids })) };
}

/**
 * The settlement with which `Inbox.setAside` settles a row that it has just appended. A failure does not postpone an
 * existing hold: the message waits behind the others of its key, and the key stays due when it was. `holds` are those
 * of the row's lane, or at least those of `holdNames`.
 *
 * @example
 * ```ts
 * const settlement = asideSettlement(row, aside, holds);
 * ```
 */
export function asideSettlement(row: Row, aside: Aside, holds: Iterable<HoldName>): Settlement {
  const name = holdOfKey(row.message);
  const isHeld = [...holds].some((hold) => hold.lane === row.lane && hold.name === name);
  if (aside.to === "parked" || !isHeld) return { row, ...aside };
  const { attempts, error } = aside;
  return { row, to: "wait", attempts, error };
}

function placeOf({ lane, position }: Pick<Row, "lane" | "position">, waiting: boolean): string {
  return `${waiting ? "w" : "p"}${lane} ${position}`;
}

function isSame(stored: SettledRow, { message, waiting, turn = 0 }: Row): boolean {
  return stored.message.id === message.id && (!waiting || (stored.turn ?? 0) === turn);
}

/** The row after its outcome. Every outcome clears its crashes. */
function afterOf<R extends SettledRow>(before: R, settlement: Settlement, now: number): R {
  if (settlement.to === "sent") return { ...before, attempts: before.attempts + 1, crashes: 0 };
  if (settlement.to === "dropped") return before;
  const { attempts, error } = settlement;
  const tried =
    error === undefined ? {} : { error, failures: failuresWith(before, { attempt: attempts, at: now, error }) };
  const holdsKey = settlement.to === "parked" && settlement.hold === true && before.message.key !== undefined;
  const holds = settlement.to === "parked" ? { holds: holdsKey } : {};
  return { ...before, attempts, crashes: 0, ...tried, ...holds };
}

function failuresWith({ failures }: SettledRow, failure: StoredFailure): readonly StoredFailure[] {
  return [...failures, failure].slice(-keptFailures);
}

function withoutHold<R extends SettledRow>({ hold: _, ...row }: R): R {
  return row as R;
}

interface PlannedHold extends HoldName {
  /** Absent if there is no such hold. */
  dueAt?: number;
  waiting: number;
  isChanged: boolean;
  /**
   * A row has left it. It ends with the settle if no other row waits under it by then; another settlement may still add
   * one.
   */
  isLeft: boolean;
}

function plannedHolds(holds: readonly SettledHold[], rows: readonly SettledRow[], now: number) {
  const all = new Map<string, PlannedHold>();
  const named = ({ lane, name }: HoldName): PlannedHold => {
    const key = `${lane} ${name}`;
    const hold = all.get(key) ?? { lane, name, waiting: 0, isChanged: false, isLeft: false };
    all.set(key, hold);
    return hold;
  };
  const due = (hold: PlannedHold, dueAt: number) => Object.assign(hold, { dueAt, isChanged: true });
  for (const { dueAt, waiting, ...name } of holds) Object.assign(named(name), { dueAt, waiting });
  // A hold may have been deleted by hand while rows wait. The loaded rows are counted.
  for (const { lane, hold: name } of rows) {
    const hold = name === undefined ? undefined : named({ lane, name });
    if (hold !== undefined && hold.dueAt === undefined) hold.waiting += 1;
  }

  return {
    /**
     * A row waits under it or stays there; without a hold it would never be read. A hold that an operator has to
     * release stays one.
     */
    wait(name: HoldName, more: 0 | 1, retryInMs: number | undefined): void {
      const hold = named(name);
      hold.waiting += more;
      if (hold.dueAt === undefined) due(hold, now + (retryInMs ?? 0));
      else if (retryInMs !== undefined && hold.dueAt !== Number.POSITIVE_INFINITY) due(hold, now + retryInMs);
    },
    leave(name: HoldName, fewer: 0 | 1 = 1): void {
      const hold = named(name);
      hold.waiting -= fewer;
      hold.isLeft = true;
    },
    /** Held until an operator releases it. */
    keep(name: HoldName): void {
      due(named(name), Number.POSITIVE_INFINITY);
    },
    changes(): Pick<SettlePlan<SettledRow>, "held" | "freed"> {
      const ends = ({ dueAt, waiting, isLeft }: PlannedHold) =>
        isLeft && waiting <= 0 && dueAt !== undefined && dueAt !== Number.POSITIVE_INFINITY;
      const every = [...all.values()];
      return {
        held: every
          .filter((hold) => hold.isChanged && !ends(hold))
          .map(({ lane, name, dueAt = now }) => ({ lane, name, dueAt })),
        freed: every.filter(ends).map(({ lane, name }) => ({ lane, name })),
      };
    },
  };
}
