import { laneCount } from "../../internal/lane.js";
import { attributeBytes } from "../../message/attributes.js";
import { mostDataBytes } from "../message-record.js";
import { outboxNumber, tablesNamed } from "./names.js";

/*
 * What the relay, health and administration rely on in an appended row, whichever role inserted it. `createMessage` and
 * `publish` refuse more, with better errors; these checks are the last line of defence.
 *
 * They are a trigger, because every append pays for them: PostgreSQL parses and plans CHECK constraints again for each
 * statement, which took three times as long.
 */

const text = (column: string, most: number) => `${column} <> '' AND octet_length(${column}) <= ${most}`;

/** Strict, because a lax path would unwrap arrays and accept an array of strings as a string. */
const object = (column: string, isBad: string) =>
  `(${column} = '{}' OR jsonb_typeof(${column}) = 'object' AND NOT jsonb_path_exists(${column}, 'strict $.* ? (${isBad})'))`;

/** Conditions by column; NULL passes. */
type Checks = Readonly<Record<string, string>>;

/** The checks of a message's columns. `row` is the prefix of the columns, such as `NEW.` */
function messageChecks(row: string): Checks {
  return {
    id: text(`${row}id`, attributeBytes.id),
    source: text(`${row}source`, attributeBytes.source),
    type: text(`${row}type`, attributeBytes.type),
    topic: text(`${row}topic`, attributeBytes.topic),
    content_type: text(`${row}content_type`, attributeBytes.type),
    subject: `octet_length(${row}subject) <= ${attributeBytes.subject}`,
    data_schema: `octet_length(${row}data_schema) <= ${attributeBytes.dataschema}`,
    // A message without a key waits under chr(1) and its id, so no key may look like that.
    key: `${text(`${row}key`, attributeBytes.key)} AND ascii(${row}key) > 31`,
    data: `octet_length(${row}data) <= ${mostDataBytes}`,
    headers: object(`${row}headers`, '@.type() != "string"'),
    extensions: object(`${row}extensions`, '@.type() == "object" || @.type() == "array" || @.type() == "null"'),
  };
}

/** Whether the row would pass the checks of a message. */
export function isMessage(row: string): string {
  return all(messageChecks(row));
}

function all(checks: Checks): string {
  return `(${Object.values(checks).join(" AND ")}) IS NOT FALSE`;
}

/**
 * The checked tables are those that rows are appended to. Only `scheduled` has a due time and a schedule key. Only
 * `pending` has attempts, crashes and failures.
 */
const checked = {
  pending: {
    attempts: "NEW.attempts >= 0",
    crashes: "NEW.crashes >= 0",
    failures: "jsonb_typeof(NEW.failures) = 'array'",
  },
  scheduled: { due_at: "isfinite(NEW.due_at)", schedule_key: text("NEW.schedule_key", attributeBytes.scheduleKey) },
} as const satisfies Record<string, Checks>;

/** The functions that check an appended row, shared by the tables of all boxes. */
export function createRowChecks(schema: string): string {
  return Object.entries(checked)
    .map(([table, own]) => {
      const checks: Checks = {
        box: "NEW.box BETWEEN TG_ARGV[0]::integer AND TG_ARGV[1]::integer",
        lane: `NEW.lane BETWEEN 0 AND ${laneCount - 1}`,
        // Reads start after 0, and this is the greatest safe integer in JavaScript.
        position: `NEW.position BETWEEN 1 AND ${Number.MAX_SAFE_INTEGER}`,
        created_at: "isfinite(NEW.created_at)",
        ...messageChecks("NEW."),
        ...own,
      };
      const faulty = Object.entries(checks).map(([column, check]) => `WHEN NOT (${check}) THEN '${column}'`);
      return `
    CREATE FUNCTION "${schema}".check_${table}() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
    DECLARE
      faulty text;
    BEGIN
      IF ${all(checks)} THEN
        RETURN NEW;
      END IF;
      faulty := CASE ${faulty.join(" ")} END;
      RAISE check_violation USING TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA, COLUMN = faulty,
        MESSAGE = format('%s of a row for %s is out of bounds', faulty, TG_TABLE_NAME),
        HINT = 'Publish with this library, or with publish() in SQL.';
    END
    $function$;`;
    })
    .join("\n");
}

/** Attaches the checks to the tables of a box. */
export function checkRows(schema: string, box: "outbox" | "inbox"): string {
  const t = tablesNamed(schema, box);
  const numbers = box === "outbox" ? [outboxNumber, outboxNumber] : [outboxNumber + 1, 0x7fffffff];
  return (["pending", "scheduled"] as const)
    .map(
      (table) => `
    CREATE TRIGGER check_${table} BEFORE INSERT ON ${t[table]} FOR EACH ROW EXECUTE FUNCTION "${schema}".check_${table}(${numbers.join(", ")});`,
    )
    .join("");
}
