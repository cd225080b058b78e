import type { Status } from "../../admin.js";
import { laneOf } from "../../internal/lane.js";
import type { Message } from "../../message/message.js";
import type { Row } from "../../store.js";
import { dropsKeptMs } from "../dropped-entries.js";
import { type MessageRecord, messageFrom, messageValues } from "../message-record.js";
import { BoxOwners } from "../rows/box-owners.js";
import { dueTimeOf } from "../rows/scheduled-rows.js";
import { holdOfId, type SettledHold, type SettledRow } from "../settle-plan.js";
import { bytesIn, type Connection, type SqliteValue } from "./sqlite-database.js";

/** The columns of a message. */
export const messageColumns =
  "id, source, type, subject, time, content_type, data_schema, topic, key, extensions, headers, data";

/** Their values. `node:sqlite` passes empty bytes as NULL. */
export const messageParameters = "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, coalesce(?, x'')";

/** The columns of a stored row that a change needs. Of the message, only its id and key. */
interface PlaceRecord {
  readonly position: number;
  readonly status: Status;
  readonly lane: number;
  readonly id: string;
  readonly key: string | null;
  readonly attempts: number;
  readonly crashes: number;
  readonly hold: string | null;
  readonly turn: number;
  readonly holds: number | null;
  readonly last_error: string | null;
  readonly failures: string;
}

/** A stored row and its status, for a change by a settle or by an operator. */
export interface PlacedRow extends SettledRow {
  readonly status: Status;
}

const insert = `INSERT INTO postbox_message
  (box, status, lane, ${messageColumns}, due_at, schedule_key, created_at, updated_at, revision)
  VALUES (?, ?, ?, ${messageParameters}, ?, ?, ?, ?, ?)`;

const place = `SELECT position, status, lane, id, key, attempts, crashes, hold, turn, holds, last_error, failures
  FROM postbox_message WHERE position = ? AND box = ?`;

/**
 * The rows of one box, within one transaction that has the lock: each change is several statements, and nothing comes
 * between them.
 */
export class BoxTransaction {
  readonly connection: Connection;
  readonly box: number;
  readonly now: number;
  #revision: number | undefined;

  constructor(connection: Connection, box: number, now: number) {
    this.connection = connection;
    this.box = box;
    this.now = now;
  }

  /** All rows that one transaction brings to another status have the same revision. */
  get revision(): number {
    this.#revision ??= this.connection.first<{ readonly revision: number }>(
      "UPDATE postbox_box SET revision = revision + 1 WHERE number = ? RETURNING revision",
      this.box,
    )?.revision;
    return Number(this.#revision);
  }

  append(messages: readonly Message[]): void {
    for (const message of messages) this.#insert(message);
  }

  /** Inserts a message as `pending`, or as `scheduled`. */
  #insert(message: Message): void {
    const dueAt = dueTimeOf(message);
    const isDue = dueAt === undefined || (dueAt <= this.now && message.scheduleKey === undefined);
    if (message.scheduleKey !== undefined) this.cancel(message.type, message.scheduleKey);
    this.connection.run(
      insert,
      this.box,
      isDue ? "pending" : "scheduled",
      ...valuesOf(message),
      isDue ? null : dueAt,
      isDue ? null : (message.scheduleKey ?? null),
      this.now,
      this.now,
      this.revision,
    );
  }

  /** Appends a message and returns it as a relay would read it. */
  appended(message: Message): Row {
    const { deliverAt: _, scheduleKey: __, ...plain } = message;
    this.#insert(plain);
    const [{ position } = { position: 0 }] = this.connection.all<{ readonly position: number }>(
      "SELECT last_insert_rowid() AS position",
    );
    const lane = laneOf(message.key ?? message.id);
    return { lane, position: Number(position), message: plain, attempts: 0, crashes: 0, waiting: false, held: false };
  }

  cancel(type: string, scheduleKey: string): boolean {
    const sql = `DELETE FROM postbox_message INDEXED BY postbox_schedule_key
      WHERE box = ? AND type = ? AND schedule_key = ? AND status = 'scheduled' AND schedule_key IS NOT NULL`;
    return this.connection.run(sql, this.box, type, scheduleKey) > 0;
  }

  /** The row at a position, whatever its status is. */
  at(position: number): PlacedRow | undefined {
    const found = this.connection.first<PlaceRecord>(place, position, this.box);
    return found && placedFrom(found);
  }

  hold(lane: number, name: string, atMost: number): SettledHold | undefined {
    const sql = `SELECT due_at, (SELECT count(*) FROM (SELECT 1 FROM postbox_message INDEXED BY postbox_waiting
        WHERE box = h.box AND lane = h.lane AND status = 'waiting' AND hold = h.name LIMIT ?)) AS waiting
      FROM postbox_hold h WHERE box = ? AND lane = ? AND name = ?`;
    const found = this.connection.first<{ readonly due_at: number | null; readonly waiting: number }>(
      sql,
      atMost,
      this.box,
      lane,
      name,
    );
    return found && { lane, name, dueAt: found.due_at ?? Number.POSITIVE_INFINITY, waiting: Number(found.waiting) };
  }

  setHold(lane: number, name: string, dueAt: number): void {
    this.connection.run(
      `INSERT INTO postbox_hold (box, lane, name, due_at) VALUES (?, ?, ?, ?)
       ON CONFLICT (box, lane, name) DO UPDATE SET due_at = excluded.due_at`,
      this.box,
      lane,
      name,
      Number.isFinite(dueAt) ? Math.ceil(dueAt) : null,
    );
  }

  endHold(lane: number, name: string): void {
    this.connection.run("DELETE FROM postbox_hold WHERE box = ? AND lane = ? AND name = ?", this.box, lane, name);
  }

  delete(position: number): void {
    this.connection.run("DELETE FROM postbox_message WHERE position = ? AND box = ?", position, this.box);
  }

  /** Writes a row in another status, or in the same one after a failed attempt. */
  write(status: Status, row: SettledRow): void {
    this.connection.run(
      `UPDATE postbox_message SET status = ?, hold = ?, turn = ?, attempts = ?, crashes = ?, holds = ?, last_error = ?,
         failures = ?, updated_at = ?, revision = ? WHERE position = ? AND box = ?`,
      status,
      row.hold ?? null,
      row.turn ?? 0,
      row.attempts,
      row.crashes,
      row.holds === undefined ? null : Number(row.holds),
      row.error ?? null,
      JSON.stringify(row.failures),
      this.now,
      this.revision,
      row.position,
      this.box,
    );
  }

  /** Appends a stored row again: it never returns to a position that a relay may have passed. */
  appendAgain(position: number): void {
    this.connection.run(
      `INSERT INTO postbox_message (box, status, lane, ${messageColumns}, last_error, failures, created_at, updated_at,
         revision)
       SELECT box, 'pending', lane, ${messageColumns}, last_error, failures, ?, ?, ? FROM postbox_message
       WHERE position = ? AND box = ?`,
      this.now,
      this.now,
      this.revision,
      position,
      this.box,
    );
  }

  /** Makes a held key due now. With `onlyForGood`, only if an operator has to release it. */
  letGo(lane: number, name: string, onlyForGood = false): boolean {
    const hold = this.hold(lane, name, 1);
    if (hold === undefined || (onlyForGood && Number.isFinite(hold.dueAt))) return false;
    if (hold.waiting === 0) this.endHold(lane, name);
    else this.setHold(lane, name, Math.min(hold.dueAt, this.now));
    return true;
  }

  /** Lets a row be sent again. A parked row starts anew, a waiting row is due now, a pending row gets another owner. */
  retry(row: PlacedRow): void {
    if (row.status === "parked") this.#retryParked(row);
    else if (row.status === "waiting") this.#retryNow(row);
    else this.changeOwners((owners) => owners.disown(row.lane));
  }

  /** A row whose key is held returns to its place. Appended again, it would follow the rows that wait for it. */
  #retryParked({ status: _, holds: __, ...row }: PlacedRow): void {
    const { lane, position, message } = row;
    const hold = message.key === undefined ? undefined : this.hold(lane, message.key, 1);
    if (hold === undefined) {
      this.appendAgain(position);
      this.delete(position);
      if (message.key !== undefined) this.#letGoUnlessParked(lane, message.key);
      return;
    }
    const turn = (row.turn ?? 0) + 1;
    this.write("waiting", { ...row, hold: hold.name, attempts: 0, crashes: 0, turn });
    this.#letGoUnlessParked(lane, hold.name);
  }

  #retryNow({ position, lane, hold: name = "" }: PlacedRow): void {
    const hold = this.hold(lane, name, 1);
    if (hold === undefined) return;
    this.connection.run("UPDATE postbox_message SET attempts = 0 WHERE position = ? AND box = ?", position, this.box);
    if (Number.isFinite(hold.dueAt)) this.setHold(lane, name, Math.min(hold.dueAt, this.now));
  }

  /** Removes a row for good. Rows that waited behind it become due. */
  remove(row: PlacedRow): void {
    const { status, position, lane, hold: name, message } = row;
    const isFirst = status === "waiting" && name !== undefined && this.#firstUnder(lane, name) === position;
    this.delete(position);
    if (status === "parked" && message.key !== undefined) this.#letGoUnlessParked(lane, message.key);
    if (name === undefined) return;
    const hold = this.hold(lane, name, 1);
    if (hold === undefined || !Number.isFinite(hold.dueAt)) return;
    if (hold.waiting === 0) this.endHold(lane, name);
    else if (isFirst) this.setHold(lane, name, Math.min(hold.dueAt, this.now));
  }

  #firstUnder(lane: number, name: string): number | undefined {
    const sql = `SELECT position FROM postbox_message INDEXED BY postbox_waiting
      WHERE box = ? AND lane = ? AND status = 'waiting' AND hold = ? ORDER BY position LIMIT 1`;
    return this.connection.first<{ readonly position: number }>(sql, this.box, lane, name)?.position;
  }

  #letGoUnlessParked(lane: number, key: string): void {
    const sql = `SELECT 1 FROM postbox_message INDEXED BY postbox_holder
      WHERE box = ? AND key = ? AND status = 'parked' AND holds = 1 LIMIT 1`;
    if (this.connection.first(sql, this.box, key) === undefined) this.letGo(lane, key, true);
  }

  owners(): BoxOwners {
    return ownersOf(this.connection, this.box, this.now);
  }

  changeOwners<R>(change: (owners: BoxOwners) => R): R {
    const owners = this.owners();
    const result = change(owners);
    this.connection.run("UPDATE postbox_box SET owners = ? WHERE number = ?", JSON.stringify(owners), this.box);
    return result;
  }

  audit(entry: {
    readonly action: string;
    readonly by: string;
    readonly reason?: string;
    readonly selection?: unknown;
    readonly ids?: readonly string[];
    readonly confirm?: string | undefined;
    readonly reached?: number;
  }): void {
    const { action, by, reason, selection, ids = [], confirm, reached } = entry;
    if (action === "drop") {
      const sql = `DELETE FROM postbox_audit INDEXED BY postbox_audit_drop WHERE box = ? AND action = 'drop' AND at < ?`;
      this.connection.run(sql, this.box, this.now - dropsKeptMs);
    }
    this.connection.run(
      `INSERT INTO postbox_audit (box, at, action, actor, reason, selection, count, ids, confirm, reached)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      this.box,
      this.now,
      action,
      by,
      reason ?? null,
      selection === undefined ? null : JSON.stringify(selection),
      ids.length,
      JSON.stringify(ids),
      confirm ?? null,
      reached ?? null,
    );
  }
}

export function ownersOf(connection: Connection, box: number, now: number): BoxOwners {
  const owners = new BoxOwners(() => now);
  const stored = connection.first<{ readonly owners: string }>("SELECT owners FROM postbox_box WHERE number = ?", box);
  if (stored !== undefined) owners.restore(JSON.parse(stored.owners));
  return owners;
}

/** The lane, and the values of `messageColumns`. */
export function valuesOf(message: Message): SqliteValue[] {
  const { lane, ...values } = messageValues(message);
  return [
    lane,
    values.id,
    values.source,
    values.type,
    values.subject ?? null,
    values.time ?? null,
    values.content_type,
    values.data_schema ?? null,
    values.topic,
    values.key ?? null,
    JSON.stringify(values.extensions),
    JSON.stringify(values.headers),
    values.data,
  ] as SqliteValue[];
}

function placedFrom(record: PlaceRecord): PlacedRow {
  const { position, status, lane, id, key, attempts, crashes, hold, turn, holds, last_error: error } = record;
  return {
    status,
    lane: Number(lane),
    position: Number(position),
    message: { id, ...(key !== null && { key }) },
    attempts: Number(attempts),
    crashes: Number(crashes),
    ...(error !== null && { error }),
    failures: JSON.parse(record.failures),
    ...(hold !== null && { hold }),
    turn: Number(turn),
    ...(holds !== null && { holds: holds === 1 }),
  };
}

/** A message as a statement returns it. */
export function messageOf(record: MessageRecord): ReturnType<typeof messageFrom> {
  return messageFrom({ ...record, data: bytesIn(record.data) });
}

/** The name of the hold of a message without a key begins with it. */
export const aloneMark: string = holdOfId({ id: "" });
