import type { AuditEntry, BoxStats, Failure, Status, StoredMessage, StoredMessageDetails } from "../../admin.js";
import { type MessageRecord, messageFrom } from "../message-record.js";

/** A row as the driver returns it. */
export type AdminRow = Readonly<Record<string, unknown>>;

export interface StatsRecord {
  readonly counts: readonly { status: Status; topic: string; count: number; ageMs: number }[] | null;
  readonly held: BoxStats["heldKeys"];
  readonly paused: boolean;
  readonly unowned: number;
  readonly owners: BoxStats["lanes"]["owners"] | null;
}

export function statsFrom({ counts, held, paused, unowned, owners }: StatsRecord, done: boolean): BoxStats {
  const rows = counts ?? [];
  const of = (status: Status) => {
    const own = rows.filter((row) => row.status === status);
    const count = own.reduce((sum, row) => sum + row.count, 0);
    if (count === 0) return { count };
    return { count, oldestAgeMs: Math.max(0, ...own.map(({ ageMs }) => ageMs)) };
  };
  const open = rows.filter(({ status }) => status !== "done");
  const topics = [...new Set(open.map(({ topic }) => topic))].sort();
  const oldestIn = (topic: string) => {
    const unsent = open.filter((row) => row.topic === topic && (row.status === "pending" || row.status === "waiting"));
    return unsent.length === 0 ? {} : { oldestAgeMs: Math.max(0, ...unsent.map(({ ageMs }) => ageMs)) };
  };
  const inTopic = (topic: string, status: Status) =>
    open.find((row) => row.topic === topic && row.status === status)?.count ?? 0;
  return {
    pending: of("pending"),
    waiting: of("waiting"),
    scheduled: of("scheduled"),
    parked: of("parked"),
    ...(done && { done: of("done") }),
    topics: topics.map((topic) => ({
      topic,
      pending: inTopic(topic, "pending"),
      waiting: inTopic(topic, "waiting"),
      scheduled: inTopic(topic, "scheduled"),
      parked: inTopic(topic, "parked"),
      ...oldestIn(topic),
    })),
    heldKeys: held,
    paused,
    lanes: { unowned, owners: [...(owners ?? [])].sort((a, b) => (a.owner < b.owner ? -1 : 1)) },
  };
}

export function storedFrom(status: Status, row: AdminRow): StoredMessage {
  const { key, last_error: lastError, due_at: dueAt, schedule_key: scheduleKey, published_at: publishedAt } = row;
  return {
    status,
    position: Number(row.position),
    lane: Number(row.lane),
    id: String(row.id),
    type: String(row.type),
    topic: String(row.topic),
    source: String(row.source),
    ...(key !== null && { key: String(key) }),
    bytes: Number(row.bytes),
    attempts: Number(row.attempts),
    ...(lastError !== null && { lastError: String(lastError) }),
    createdAt: dateFrom(row.created_at),
    updatedAt: dateFrom(row.updated_at),
    // A hold that only an operator can release has no due time.
    ...(dueAt !== null && Number.isFinite(dateFrom(dueAt).getTime()) && { dueAt: dateFrom(dueAt) }),
    ...(scheduleKey !== null && { scheduleKey: String(scheduleKey) }),
    ...(publishedAt !== null && { publishedAt: dateFrom(publishedAt) }),
  };
}

export function detailsFrom(status: Status, row: AdminRow): StoredMessageDetails {
  const failures = JSON.parse(String(row.failures ?? "[]")) as { attempt: number; at: string; error: string }[];
  return {
    ...storedFrom(status, row),
    ...messageFrom(row as unknown as MessageRecord),
    failures: failures.map(({ attempt, at, error }): Failure => ({ attempt, at: new Date(at), error })),
  };
}

export function auditFrom(row: AdminRow): AuditEntry {
  return {
    number: Number(row.number),
    at: dateFrom(row.at),
    box: String(row.box),
    action: row.action as AuditEntry["action"],
    by: String(row.actor),
    ...(row.reason !== null && { reason: String(row.reason) }),
    ...(row.selection !== null && { selection: JSON.parse(String(row.selection)) }),
    count: Number(row.count),
    ids: JSON.parse(String(row.ids)),
  };
}

/** Already a Date, unless the user has set another parser for timestamps. */
function dateFrom(value: unknown): Date {
  return value instanceof Date ? value : new Date(String(value));
}
