import type { Message } from "../message/message.js";
import type { Aside, Row, Settlement, SettleOptions } from "../store.js";
import { keptFailures } from "./admin-options.js";

/*
 * What a settle means, for every store. In one transaction, a store locks the lanes' epochs, loads what the settlements name, asks
 * for the plan, and writes it. The plan is data: it needs no procedure in the database, and no particular way to store a row.
 */

type MessageIdentity = Pick<Message, "id" | "key">;

/** A try that failed. */
interface StoredFailure {
  readonly attempt: number;
  readonly at: number;
  readonly error: string;
}

/** A row that is still to be sent, as far as a settle looks at it. Whatever else a store keeps of a row stays as it is. */
export interface SettledRow {
  readonly lane: number;
  readonly position: number;
  readonly message: MessageIdentity;
  readonly attempts: number;
  readonly crashes: number;
  readonly error?: string;
  /** The last tries that failed, oldest first. */
  readonly failures: readonly StoredFailure[];
  /** The name of the hold that it waits under. Absent: it is in `pending`. */
  readonly hold?: string;
  /** How often an operator has put it back to its place. Defaults to never. */
  readonly turn?: number;
  /** Of a parked one: whether it holds its key. */
  readonly holds?: boolean;
}

/** What keeps the rows of a key, or one row alone, from being sent before a moment. */
interface HoldName {
  readonly lane: number;
  readonly name: string;
}

export interface SettledHold extends HoldName {
  /** In ms, by the database's clock; Infinity: an operator has to release it. */
  readonly dueAt: number;
  /** How many rows wait under it. Beyond one more than those that are loaded, a store need not count. */
  readonly waiting: number;
}

/** What a store loads before it asks for the plan. */
export interface SettleState<R extends SettledRow> {
  /** The rows at the places that the settlements name, whichever messages they have. One that was sent already is not among them. */
  readonly rows: readonly R[];
  /** The holds that these rows, and those that the settlements name, may be under: `holdNames`. */
  readonly holds: readonly SettledHold[];
  /** The database's clock, in ms. */
  readonly now: number;
}

/** What becomes of one row. A store that keeps what was sent keeps `after`. */
export interface RowWrite<R extends SettledRow> {
  readonly before: R;
  /** `pending`: it stays there. Behind `sent` and `dropped`, the row is to be read no more. */
  readonly to: Settlement["to"];
  readonly after: R;
}

/** What a store writes. Each list names a row, or a hold, once at most. */
export interface SettlePlan<R extends SettledRow> {
  readonly rows: readonly RowWrite<R>[];
  /** Holds that are made, or due at another time. */
  readonly held: readonly Omit<SettledHold, "waiting">[];
  /** Holds that end. */
  readonly freed: readonly HoldName[];
  /** Entries of the audit, one for each reason. */
  readonly drops: readonly { readonly reason: string; readonly ids: readonly string[] }[];
}

/** The name of the hold that a row without a key waits under, or one that waits alone. No key begins with U+0001. */
export function holdOfId({ id }: MessageIdentity): string {
  return `\u0001${id}`;
}

/** The name of the hold of the message's key; without a key, of itself. */
export function holdOfKey(message: MessageIdentity): string {
  return message.key ?? holdOfId(message);
}

/** All names that a row of this message may be held under. */
export function holdNames(message: MessageIdentity): readonly string[] {
  return message.key === undefined ? [holdOfId(message)] : [holdOfId(message), message.key];
}

/**
 * What is to be written for these settlements, whose lanes stand. A row is the one that was read only if its message has the same id, and, if
 * it waits, if it is of the same turn. Any other is passed over, so a settle whose answer was lost can be repeated.
 *
 * What was sent from `pending` concerns no other row and no hold: a store may settle those by a statement of their own instead.
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
      // Its handler may have taken it out already, and not the hold of its key.
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
    // Its key, whatever it has waited under itself.
    if (to === "parked" && after.holds && message.key !== undefined) planned.keep({ lane, name: message.key });
    if (to === "dropped") dropped.set(settlement.reason, [...(dropped.get(settlement.reason) ?? []), row.message.id]);
  }
  return { rows: written, ...planned.changes(), drops: [...dropped].map(([reason, ids]) => ({ reason, ids })) };
}

/**
 * What `Inbox.setAside` settles of a row that it has just appended. A failure moves no hold that is there already: the message waits
 * behind those of its key, and the key stays due when it was. `holds` are those of the row's lane, or at least the ones of `holdNames`.
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

/** The row itself, as its outcome leaves it. Whatever that is, its crashes are forgotten. */
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
  /** Absent where there is no such hold. */
  dueAt?: number;
  waiting: number;
  isChanged: boolean;
  /** A row has left it: it ends with the settle, if no other one waits there then. Not before: another row may come behind. */
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
  // Rows may wait without their hold, if it was deleted by hand: those that are known count.
  for (const { lane, hold: name } of rows) {
    const hold = name === undefined ? undefined : named({ lane, name });
    if (hold !== undefined && hold.dueAt === undefined) hold.waiting += 1;
  }

  return {
    /** A row waits under it, or stays there. Without a hold it would never be read. One that an operator has to release stays so. */
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
    /** Until an operator releases it. */
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
