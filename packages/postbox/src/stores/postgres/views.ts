import { inboxOf } from "../../store.js";
import { boxTable, inboxTable, tablesNamed } from "./names.js";

/*
 * All tables of a box as one view, for reading: `outbox_messages` and `inbox_messages`. Each branch has its status as a
 * constant, so that a condition on the status excludes the other tables.
 */

const message = [
  "subject",
  "time",
  "content_type",
  "data_schema",
  "event_version",
  "extensions",
  "headers",
  "data",
] as const;

/** What differs between the tables of a box. */
interface Branch {
  readonly status: string;
  readonly from: string;
  readonly attempts: string;
  readonly lastError?: string;
  readonly updatedAt: string;
  readonly dueAt?: string;
  readonly scheduleKey?: string;
  readonly publishedAt?: string;
  readonly failures?: string;
}

export function createViews(schema: string): string {
  const consumer = `(SELECT substr(b.name, ${inboxOf("").length + 1}) FROM ${boxTable(schema)} b WHERE b.number = m.box) AS consumer, `;
  return `
    CREATE VIEW "${schema}".outbox_messages AS${boxBranches(schema, "outbox", "")};
    COMMENT ON VIEW "${schema}".outbox_messages IS 'All messages of the outbox, with their status.';

    CREATE VIEW "${schema}".inbox_messages AS${boxBranches(schema, "inbox", consumer)}
    UNION ALL${processed(schema)};
    COMMENT ON VIEW "${schema}".inbox_messages IS
      'The messages in the inboxes of all consumers, with their status; as ''processed'' those that a consumer has handled, within its retention.';
`;
}

function boxBranches(schema: string, box: "outbox" | "inbox", before: string): string {
  const t = tablesNamed(schema, box);
  const done = { status: "done", attempts: "m.attempts", updatedAt: "m.done_at", publishedAt: "m.done_at" };
  const branches: readonly Branch[] = [
    {
      status: "pending",
      from: `${t.pending} m`,
      attempts: "m.attempts",
      lastError: "m.last_error",
      updatedAt: "m.created_at",
      failures: "m.failures",
    },
    {
      status: "waiting",
      from: `${t.wait} m`,
      attempts: "m.attempts",
      lastError: "m.last_error",
      updatedAt: "m.updated_at",
      // A hold that only an operator can release has no due time.
      dueAt: `(SELECT nullif(h.due_at, 'infinity') FROM ${t.hold} h WHERE h.box = m.box AND h.lane = m.lane AND h.key = m.hold_key)`,
      failures: "m.failures",
    },
    {
      status: "scheduled",
      from: `${t.scheduled} m`,
      attempts: "0",
      updatedAt: "m.created_at",
      dueAt: "m.due_at",
      scheduleKey: "m.schedule_key",
    },
    {
      status: "parked",
      from: `${t.parked} m`,
      attempts: "m.attempts",
      lastError: "m.reason",
      updatedAt: "m.parked_at",
      failures: "m.failures",
    },
    { ...done, from: `${t.done} m`, failures: "m.failures" },
    { ...done, from: `${t.overflow} m`, failures: "m.failures" },
  ];
  return branches.map((branch) => select(branch, before)).join("\n    UNION ALL");
}

function select(branch: Branch, before: string): string {
  return `
    SELECT ${before}'${branch.status}'::text AS status, m.position, m.lane, m.id, m.type, m.topic, m.key, m.source,
      m.extensions ->> 'correlationid' AS correlation_id, octet_length(m.data) AS bytes,
      ${branch.attempts} AS attempts, ${branch.lastError ?? "NULL::text"} AS last_error,
      m.created_at, ${branch.updatedAt} AS updated_at, ${branch.dueAt ?? "NULL::timestamptz"} AS due_at,
      ${branch.publishedAt ?? "NULL::timestamptz"} AS published_at,
      ${message.map((column) => `m.${column}`).join(", ")}, ${branch.failures ?? "NULL::jsonb"} AS failures,
      ${branch.scheduleKey ?? "NULL::text"} AS schedule_key
    FROM ${branch.from}`;
}

/** A consumer remembers that it has handled a message, not the message itself, so its other columns are NULL. */
function processed(schema: string): string {
  return `
    SELECT m.consumer, 'processed'::text AS status, NULL::bigint, NULL::integer, m.id, m.type, m.topic, NULL::text, m.source,
      m.correlation_id, NULL::integer, NULL::integer, NULL::text,
      m.received_at, m.processed_at, NULL::timestamptz, m.processed_at,
      NULL::text, NULL::text, NULL::text, NULL::text, m.event_version, NULL::jsonb, NULL::jsonb, m.data, NULL::jsonb, NULL::text
    FROM ${inboxTable(schema)} m WHERE m.processed_at IS NOT NULL`;
}
