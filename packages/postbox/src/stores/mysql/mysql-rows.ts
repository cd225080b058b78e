import type { Status } from "../../admin.js";
import { PostboxError } from "../../errors.js";
import { messageBytes } from "../../message/attributes.js";
import type { Message } from "../../message/message.js";
import { keptFailures } from "../admin-options.js";
import { dropsCleared, dropsKeptMs } from "../dropped-entries.js";
import { type MessageRecord, messageFrom, messageValues } from "../message-record.js";
import { holdOfId, type RowWrite, type SettledHold, type SettledRow, type SettlePlan } from "../settle-plan.js";
import { msOf, nowSql, storedTime, type Tables } from "./names.js";
import type { Session } from "./own-connections.js";
import type { Server } from "./server.js";

/** The columns of a message, in every table that has messages. */
export const messageColumns =
  "id, source, type, subject, time, content_type, data_schema, topic, `key`, extensions, headers, data";

/** As many as `messageColumns`. */
export const messageMarks = "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?";

/** The same columns of the table `m`. */
export const messageColumnsOfM = messageColumns
  .split(", ")
  .map((name) => `m.${name}`)
  .join(", ");

/** The most rows, and bytes of values, of one statement: servers and clients limit the size of a packet. */
const mostRowsAtOnce = 200;
const mostBytesAtOnce = 4 * 1024 * 1024;

/** A stored row and its status, for a change by a settle or by an operator. */
export interface PlacedRow extends SettledRow {
  readonly status: Status;
}

/** Where a row is. */
export interface Place {
  readonly lane: number;
  readonly position: number;
}

/** Registers this connection as a writer in progress. Run it before the statement that draws a position. */
export const registerSql = (t: Tables) => `INSERT INTO ${t.writer} (connection, appends, at)
  VALUES (CONNECTION_ID(), 1, ${nowSql}) ON DUPLICATE KEY UPDATE appends = appends + 1, at = ${nowSql}`;

/**
 * The rows of one box, within one transaction of the store. The lanes of the rows that it changes are locked, so that
 * nothing comes between what it reads and what it writes.
 */
export class BoxTransaction {
  readonly session: Session;
  readonly t: Tables;
  readonly box: number;
  /** The server's clock when the transaction began, in ms. */
  readonly now: number;

  constructor(session: Session, t: Tables, box: number, now: number) {
    this.session = session;
    this.t = t;
    this.box = box;
    this.now = now;
  }

  /** The rows at these places, whatever their messages are. */
  async rowsAt(status: "pending" | "waiting" | "parked", places: readonly Place[]): Promise<PlacedRow[]> {
    if (places.length === 0) return [];
    const more = { pending: "", waiting: ", hold, turn", parked: ", turn, holds" }[status];
    const rows: PlacedRow[] = [];
    for (const part of chunks(places, () => 16)) {
      const found = await this.session.run(
        `SELECT lane, position, id, \`key\`, attempts, crashes, last_error, failures${more}
         FROM ${this.t[status]} FORCE INDEX (PRIMARY) WHERE box = ${this.box} AND (${rangesOf(part)})`,
      );
      rows.push(...found.rows.map((row) => placedFrom(status, row as unknown as PlaceRecord)));
    }
    return rows;
  }

  /** The holds with these names. Counts at most one row beyond those in `loaded`. */
  async holds(names: ReadonlyMap<number, ReadonlySet<string>>, loaded: readonly SettledRow[]): Promise<SettledHold[]> {
    const all = [...names].flatMap(([lane, each]) => [...each].map((name) => ({ lane, name })));
    if (all.length === 0) return [];
    const waiting = loaded.filter(({ hold }) => hold !== undefined);
    const counts = new Map<string, number>();
    for (const { lane, hold } of waiting) counts.set(`${lane} ${hold}`, (counts.get(`${lane} ${hold}`) ?? 0) + 1);
    const positions = waiting.length === 0 ? "0" : waiting.map(({ position }) => position).join(", ");
    const holds: SettledHold[] = [];
    for (const part of chunks(all, ({ name }) => 2 * name.length)) {
      const named = part.map(() => "(lane = ? AND name = ?)").join(" OR ");
      const found = await this.session.run(
        `SELECT lane, name, due_at, EXISTS (SELECT 1 FROM ${this.t.waiting} w FORCE INDEX (hold)
           WHERE w.box = h.box AND w.lane = h.lane AND w.hold = h.name AND w.position NOT IN (${positions})) AS more
         FROM ${this.t.hold} h FORCE INDEX (PRIMARY) WHERE box = ${this.box} AND (${named})`,
        part.flatMap(({ lane, name }) => [lane, Buffer.from(name)]),
      );
      for (const row of found.rows) {
        const [lane, name] = [Number(row.lane), String(row.name)];
        const dueAt = row.due_at === null ? Number.POSITIVE_INFINITY : msOf(row.due_at);
        holds.push({ lane, name, dueAt, waiting: (counts.get(`${lane} ${name}`) ?? 0) + Number(row.more) });
      }
    }
    return holds;
  }

  async hold(lane: number, name: string): Promise<SettledHold | undefined> {
    return (await this.holds(new Map([[lane, new Set([name])]]), []))[0];
  }

  /** Writes what a settle has planned. `keep` retains sent rows in `done`. */
  async write(plan: SettlePlan<PlacedRow>, keep: boolean): Promise<void> {
    await this.setHolds(plan.held);
    const moves = new Map<string, RowWrite<PlacedRow>[]>();
    for (const write of plan.rows) {
      const from = write.before.status;
      const to = write.to === "sent" && !keep ? "dropped" : write.to;
      const group = `${from} ${statusOf[to]}`;
      moves.set(group, [...(moves.get(group) ?? []), write]);
    }
    for (const [group, writes] of moves) {
      const [from, to] = group.split(" ") as [Moved, Moved | "none"];
      if (to === from) await this.#update(from, writes);
      else {
        if (to !== "none") await this.#copy(from, to, writes);
        await this.remove(
          from,
          writes.map(({ before }) => before),
        );
      }
    }
    await this.endHolds(plan.freed);
    for (const drop of plan.drops) await this.audit({ action: "drop", by: "relay", ...drop });
  }

  async setHolds(holds: readonly Omit<SettledHold, "waiting">[]): Promise<void> {
    for (const part of chunks(holds, ({ name }) => 2 * name.length)) {
      await this.session.run(
        `INSERT INTO ${this.t.hold} (box, lane, name, due_at) VALUES ${part.map(() => `(${this.box}, ?, ?, ?)`).join(", ")}
         ON DUPLICATE KEY UPDATE due_at = VALUES(due_at)`,
        part.flatMap(({ lane, name, dueAt }) => [
          lane,
          Buffer.from(name),
          Number.isFinite(dueAt) ? storedTime(dueAt) : null,
        ]),
      );
    }
  }

  async endHolds(holds: readonly Pick<SettledHold, "lane" | "name">[]): Promise<void> {
    for (const part of chunks(holds, ({ name }) => 2 * name.length)) {
      await this.session.run(
        `DELETE FROM ${this.t.hold} USING ${this.t.hold} FORCE INDEX (PRIMARY)
         WHERE box = ${this.box} AND (${part.map(() => "(lane = ? AND name = ?)").join(" OR ")})`,
        part.flatMap(({ lane, name }) => [lane, Buffer.from(name)]),
      );
    }
  }

  /** Deletes rows by their primary keys. */
  async remove(status: Moved, places: readonly Place[]): Promise<void> {
    for (const part of chunks(places, () => 16)) {
      await this.session.run(
        `DELETE FROM ${this.t[status]} USING ${this.t[status]} FORCE INDEX (PRIMARY)
         WHERE box = ${this.box} AND (${rangesOf(part)})`,
      );
    }
  }

  /** Copies rows to another table, with what has become of them. */
  async #copy(from: Moved, to: Moved, writes: readonly RowWrite<PlacedRow>[]): Promise<void> {
    const own = { pending: [], waiting: ["hold", "turn"], parked: ["turn", "holds"], done: [] }[to];
    const values = ["attempts", "crashes", "last_error", "failures", ...own];
    for (const part of chunks(writes, sizeOf)) {
      await this.session.run(
        `INSERT INTO ${this.t[to]} (box, lane, position, ${messageColumns}, created_at, updated_at, ${values.join(", ")})
         SELECT m.box, m.lane, m.position, ${messageColumnsOfM}, m.created_at, ${storedTime(this.now)},
           ${values.map((name) => `v.${name}`).join(", ")}
         FROM ${valuesTable(part)} STRAIGHT_JOIN ${this.t[from]} m FORCE INDEX (PRIMARY)
           ON m.box = ${this.box} AND m.lane = v.lane AND m.position = v.position`,
        part.flatMap(valuesOfWrite),
      );
    }
  }

  /** Writes rows that stay in their table. */
  async #update(status: Moved, writes: readonly RowWrite<PlacedRow>[]): Promise<void> {
    const own = status === "waiting" ? ["updated_at", "hold", "turn"] : [];
    const set = ["attempts", "crashes", "last_error", "failures", ...own].map((name) =>
      name === "updated_at" ? `m.updated_at = ${storedTime(this.now)}` : `m.${name} = v.${name}`,
    );
    for (const part of chunks(writes, sizeOf)) {
      await this.session.run(
        `UPDATE ${valuesTable(part)} STRAIGHT_JOIN ${this.t[status]} m FORCE INDEX (PRIMARY)
           ON m.box = ${this.box} AND m.lane = v.lane AND m.position = v.position SET ${set.join(", ")}`,
        part.flatMap(valuesOfWrite),
      );
    }
  }

  /** Announces that this transaction draws positions. */
  async register(): Promise<void> {
    await this.session.run(registerSql(this.t));
  }

  /** Appends messages in their order. */
  async append(messages: readonly Message[]): Promise<void> {
    for (const part of chunks(messages, bytesOfMessage)) {
      await this.session.run(...insertPending(this.t, this.box, part));
    }
  }

  /** Appends stored rows again, in this order: they never return to positions that a relay may have passed. */
  async appendAgain(status: "parked" | "done", positions: readonly number[]): Promise<void> {
    if (positions.length === 0) return;
    // A replay takes the first row of each position; a failover may have assigned it twice.
    await this.session.run(
      `INSERT INTO ${this.t.pending} (box, lane, ${messageColumns}, created_at, last_error, failures)
       SELECT m.box, m.lane, ${messageColumnsOfM}, ${storedTime(this.now)}, m.last_error, m.failures
       FROM ${this.t[status]} m FORCE INDEX (by_position)
       WHERE m.box = ${this.box} AND m.position IN (${positions.join(", ")}) ORDER BY m.position`,
    );
  }

  /** Makes a held key due now. With `onlyForGood`, only if an operator has to release it. */
  async letGo(lane: number, name: string, onlyForGood = false): Promise<boolean> {
    const hold = await this.hold(lane, name);
    if (hold === undefined || (onlyForGood && Number.isFinite(hold.dueAt))) return false;
    if (hold.waiting === 0) await this.endHolds([hold]);
    else await this.setHolds([{ lane, name, dueAt: Math.min(hold.dueAt, this.now) }]);
    return true;
  }

  /**
   * Lets a parked row be sent again. A row whose key is held returns to its place, before the rows that wait for it.
   */
  async retryParked(row: PlacedRow): Promise<void> {
    const { lane, position, message } = row;
    const hold = message.key === undefined ? undefined : await this.hold(lane, message.key);
    if (hold === undefined) {
      await this.appendAgain("parked", [position]);
      await this.remove("parked", [row]);
      if (message.key !== undefined) await this.#letGoUnlessParked(lane, message.key);
      return;
    }
    const { status: _, holds: __, ...rest } = row;
    const after = { ...rest, attempts: 0, crashes: 0, turn: (row.turn ?? 0) + 1, hold: hold.name };
    await this.#copy("parked", "waiting", [{ before: row, to: "wait", after: { ...after, status: "waiting" } }]);
    await this.remove("parked", [row]);
    await this.#letGoUnlessParked(lane, hold.name);
  }

  /** Makes a waiting row due now, unless an operator has to release its key. */
  async retryWaiting({ lane, position, hold: name = "" }: PlacedRow): Promise<void> {
    const hold = await this.hold(lane, name);
    if (hold === undefined) return;
    await this.session.run(
      `UPDATE ${this.t.waiting} SET attempts = 0 WHERE box = ${this.box} AND lane = ${lane} AND position = ${position}`,
    );
    if (Number.isFinite(hold.dueAt)) await this.setHolds([{ ...hold, dueAt: Math.min(hold.dueAt, this.now) }]);
  }

  /** Removes a row for good. Rows that waited behind it become due. */
  async discard(row: PlacedRow): Promise<void> {
    const { status, position, lane, hold: name, message } = row;
    const isFirst = status === "waiting" && name !== undefined && (await this.#firstUnder(lane, name)) === position;
    await this.remove(status as Moved, [row]);
    if (status === "parked" && message.key !== undefined) await this.#letGoUnlessParked(lane, message.key);
    if (name === undefined) return;
    const hold = await this.hold(lane, name);
    if (hold === undefined || !Number.isFinite(hold.dueAt)) return;
    if (hold.waiting === 0) await this.endHolds([hold]);
    else if (isFirst) await this.setHolds([{ ...hold, dueAt: Math.min(hold.dueAt, this.now) }]);
  }

  async #firstUnder(lane: number, name: string): Promise<number> {
    const { rows } = await this.session.run(
      `SELECT position FROM ${this.t.waiting} FORCE INDEX (hold)
       WHERE box = ${this.box} AND lane = ? AND hold = ? ORDER BY position LIMIT 1`,
      [lane, Buffer.from(name)],
    );
    return Number(rows[0]?.position);
  }

  async #letGoUnlessParked(lane: number, key: string): Promise<void> {
    const { rows } = await this.session.run(
      `SELECT 1 FROM ${this.t.parked} FORCE INDEX (holder)
       WHERE box = ${this.box} AND lane = ? AND holds = TRUE AND \`key\` = ? LIMIT 1`,
      [lane, key],
    );
    if (rows.length === 0) await this.letGo(lane, key, true);
  }

  async audit(entry: {
    readonly action: string;
    readonly by: string;
    readonly reason?: string;
    readonly selection?: unknown;
    readonly ids?: readonly string[];
    readonly confirm?: string | undefined;
    readonly reached?: number;
  }): Promise<void> {
    const { action, by, reason, selection, ids = [], confirm, reached } = entry;
    if (action === "drop") await this.#clearDrops();
    await this.session.run(
      `INSERT INTO ${this.t.audit} (box, at, action, actor, reason, selection, count, ids, confirm, reached)
       VALUES (${this.box}, ${storedTime(this.now)}, ?, ?, ?, ?, ?, ?, ?, ?)`,
      [
        action,
        by,
        reason ?? null,
        selection === undefined ? null : JSON.stringify(selection),
        ids.length,
        JSON.stringify(ids),
        confirm ?? null,
        reached ?? null,
      ],
    );
  }

  async #clearDrops(): Promise<void> {
    const { rows } = await this.session.run(
      `SELECT number FROM ${this.t.audit} FORCE INDEX (drops)
       WHERE box = ${this.box} AND action = 'drop' AND at < ${storedTime(this.now - dropsKeptMs)} LIMIT ${dropsCleared}`,
    );
    if (rows.length === 0) return;
    const numbers = rows.map(({ number }) => Number(number)).join(", ");
    await this.session.run(`DELETE FROM ${this.t.audit} WHERE number IN (${numbers})`);
  }
}

/** The tables between which rows move. */
type Moved = "pending" | "waiting" | "parked" | "done";

const statusOf = { sent: "done", wait: "waiting", parked: "parked", pending: "pending", dropped: "none" } as const;

/** The statement that appends messages to `pending`, and its values. */
export function insertPending(t: Tables, box: number, messages: readonly Message[]): [string, unknown[]] {
  const rows = messages.map(() => `(${box}, ?, ${messageMarks}, ${nowSql})`);
  return [
    `INSERT INTO ${t.pending} (box, lane, ${messageColumns}, created_at) VALUES ${rows.join(", ")}`,
    messages.flatMap(valuesOf),
  ];
}

/** About how long a message is in a statement, where each byte takes two characters. */
export function bytesOfMessage(message: Message): number {
  return 2 * messageBytes(message) + 1024;
}

/** Throws before a statement that the server would answer by closing the connection. */
export function requireFits(messages: readonly Message[], { mostBytes }: Server): void {
  for (const message of messages) {
    if (bytesOfMessage(message) <= mostBytes) continue;
    const size = messageBytes(message);
    throw new PostboxError(
      "message-too-large",
      `message ${message.id} of type ${message.type} has ${size} bytes: the server's max_allowed_packet, ` +
        `${mostBytes}, allows less than half of it for a message; raise it, or store the data elsewhere`,
      { path: "data" },
    );
  }
}

/** Cuts items into parts that one statement can hold. */
export function* chunks<T>(items: readonly T[], bytes: (item: T) => number): Iterable<readonly T[]> {
  let [from, size] = [0, 0];
  for (const [index, item] of items.entries()) {
    const more = bytes(item);
    if (index > from && (index - from === mostRowsAtOnce || size + more > mostBytesAtOnce)) {
      yield items.slice(from, index);
      [from, size] = [index, 0];
    }
    size += more;
  }
  if (from < items.length) yield items.slice(from);
}

/** A condition on the primary key: ranges of an index that starts with the box and the lane. */
function rangesOf(places: readonly Place[]): string {
  const byLane = new Map<number, number[]>();
  for (const { lane, position } of places) {
    const positions = byLane.get(lane);
    if (positions === undefined) byLane.set(lane, [position]);
    else positions.push(position);
  }
  return [...byLane]
    .map(([lane, positions]) => `(lane = ${lane} AND position IN (${positions.join(", ")}))`)
    .join(" OR ");
}

/** The outcomes of rows as a table `v`. */
function valuesTable(writes: readonly unknown[]): string {
  const first =
    "SELECT ? AS lane, ? AS position, ? AS attempts, ? AS crashes, ? AS last_error, ? AS failures, ? AS hold, " +
    "? AS turn, ? AS holds";
  return `(${[first, ...writes.slice(1).map(() => "SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?")].join(" UNION ALL ")}) v`;
}

function valuesOfWrite({ before, after }: RowWrite<PlacedRow>): unknown[] {
  return [
    before.lane,
    before.position,
    after.attempts,
    after.crashes,
    after.error ?? null,
    JSON.stringify(after.failures),
    after.hold === undefined ? null : Buffer.from(after.hold),
    after.turn ?? 0,
    after.holds === true ? 1 : 0,
  ];
}

function sizeOf({ after }: RowWrite<PlacedRow>): number {
  return 200 + (after.failures.length + 1) * 2 * (after.error?.length ?? 0) + (keptFailures - after.failures.length);
}

/**
 * The lane, and the values of `messageColumns`. Texts are passed as bytes: then neither the character set nor the SQL
 * mode of a user's connection can change them.
 */
export function valuesOf(message: Message): unknown[] {
  const { lane, ...values } = messageValues(message);
  return [
    lane,
    bytesOf(values.id),
    bytesOf(values.source),
    bytesOf(values.type),
    bytesOf(values.subject),
    bytesOf(values.time),
    bytesOf(values.content_type),
    bytesOf(values.data_schema),
    bytesOf(values.topic),
    bytesOf(values.key),
    Buffer.from(JSON.stringify(values.extensions)),
    Buffer.from(JSON.stringify(values.headers)),
    values.data,
  ];
}

function bytesOf(text: unknown): Buffer | null {
  return text === undefined ? null : Buffer.from(text as string);
}

interface PlaceRecord {
  readonly position: number;
  readonly lane: number;
  readonly id: string;
  readonly key: string | null;
  readonly attempts: number;
  readonly crashes: number;
  readonly hold?: Buffer;
  readonly turn?: number;
  readonly holds?: number;
  readonly last_error: string | null;
  readonly failures: string | null;
}

function placedFrom(status: "pending" | "waiting" | "parked", record: PlaceRecord): PlacedRow {
  const { position, lane, id, key, attempts, crashes, hold, turn, holds, last_error: error } = record;
  return {
    status,
    lane: Number(lane),
    position: Number(position),
    message: { id, ...(key !== null && { key }) },
    attempts: Number(attempts),
    crashes: Number(crashes),
    ...(error !== null && { error }),
    failures: JSON.parse(record.failures ?? "[]"),
    ...(hold !== undefined && { hold: String(hold) }),
    ...(turn !== undefined && { turn: Number(turn) }),
    ...(holds !== undefined && { holds: Number(holds) === 1 }),
  };
}

/** A message as a statement returns it. */
export function messageOf(record: object): ReturnType<typeof messageFrom> {
  return messageFrom(record as MessageRecord);
}

/** The name of the hold of a message without a key begins with it. */
export const aloneMark: string = holdOfId({ id: "" });
