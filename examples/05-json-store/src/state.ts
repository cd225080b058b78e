import type { Message } from "postbox";
import { type AuditEntry, laneCount, type Member, type SettledHold, type SettledRow, type Status } from "postbox/store";

/** A map that JSON writes as its entries. */
export class Table<K, V> extends Map<K, V> {
  toJSON(): readonly (readonly [K, V])[] {
    return [...this];
  }
}

/** A message as JSON can hold it: its data as base64. When it is scheduled, and under which key, its row says. */
export type JsonMessage = Omit<Message, "data" | "deliverAt" | "scheduleKey"> & { readonly data: string };

/** One message in a box. Rows are never changed, only replaced, so that a draft can share them with the last commit. */
export interface StoredRow extends SettledRow {
  readonly message: JsonMessage;
  readonly status: Status;
  /** The revision of the box at which the row came to its status. */
  readonly revision: number;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly dueAt?: number;
  readonly scheduleKey?: string;
  readonly publishedAt?: number;
}

export type HoldName = Pick<SettledHold, "lane" | "name">;

export interface BoxState {
  /** The last position that was given. */
  drawn: number;
  revision: number;
  pausedAt?: number | undefined;
  /** Of an inbox: it may have forgotten messages that are older than this. */
  forgottenUntil: number;
  /** `clean`: the last owner gave the lane back. */
  readonly lanes: { readonly epoch: number; readonly owner?: string; readonly clean: boolean }[];
  readonly members: Table<string, Pick<Member, "order" | "beat" | "leaseMs"> & { readonly expiresAt: number }>;
  /** In order of position: a new row gets the highest one, and a row that is replaced keeps its place. */
  readonly rows: Table<number, StoredRow>;
  /** By lane and name: `holdId`. */
  readonly holds: Table<string, Omit<SettledHold, "waiting">>;
  /** Of an inbox, by the id that it knows a message by; `since` is the later of its arrival and the message's time. */
  readonly remembered: Table<string, Memory>;
}

interface Memory {
  readonly since: number;
  readonly hash?: string | undefined;
  readonly data?: string | undefined;
  readonly handledAt?: number | undefined;
}

/** Everything that the file holds. */
export interface State {
  readonly boxes: Table<string, BoxState>;
  readonly schedules: Table<string, { readonly id: string; readonly lastTick: number }>;
  readonly audit: (Omit<AuditEntry, "at"> & { readonly at: number })[];
  /** How far each confirmed replay has come. */
  readonly replays: Table<string, number>;
  /** The user's own values. */
  readonly documents: Table<string, unknown>;
}

export function emptyState(): State {
  const boxes = new Table([["outbox", emptyBox()]]);
  return { boxes, schedules: new Table(), audit: [], replays: new Table(), documents: new Table() };
}

export function emptyBox(): BoxState {
  const lanes = Array.from({ length: laneCount }, () => ({ epoch: 0, clean: true }));
  const tables = { members: new Table(), rows: new Table(), holds: new Table(), remembered: new Table() } as const;
  return { drawn: 0, revision: 0, forgottenUntil: 0, lanes, ...tables } as BoxState;
}

/** A copy that can be changed. Takes what `JSON.parse` makes of a state as well, since tables are written as their entries. */
export function copyOf({ boxes, schedules, audit, replays, documents }: State): State {
  return {
    boxes: new Table([...boxes].map(([name, box]) => [name, copyOfBox(box)])),
    schedules: new Table(schedules),
    audit: [...audit],
    replays: new Table(replays),
    documents: new Table(documents),
  };
}

function copyOfBox(box: BoxState): BoxState {
  return {
    ...box,
    lanes: [...box.lanes],
    members: new Table(box.members),
    rows: new Table(box.rows),
    // JSON writes Infinity as null: the moment at which a key goes on that an operator has to release.
    holds: new Table([...box.holds].map(([id, hold]) => [id, { ...hold, dueAt: hold.dueAt ?? Infinity }])),
    remembered: new Table(box.remembered),
  };
}
