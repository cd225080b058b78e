import type { Message } from "../../message/message.js";
import { type MessageColumn, messageColumnNames, mostDataBytes } from "../message-record.js";

const types: Readonly<Partial<Record<MessageColumn, string>>> = {
  extensions: "jsonb",
  headers: "jsonb",
  data: "bytea",
};

/** The columns that hold a message, each with its type. */
export const messageColumns: readonly (readonly [MessageColumn, string])[] = messageColumnNames.map((name) => [
  name,
  types[name] ?? "text",
]);

const rare: ReadonlySet<MessageColumn> = new Set(["subject", "data_schema", "event_version"]);

/** The columns that most messages use. The rare ones need not be sent as NULL. */
export const usualColumns: typeof messageColumns = messageColumns.filter(([name]) => !rare.has(name));

/** The columns that this message needs. */
export function columnsOf({ subject, dataschema, extensions }: Message): typeof messageColumns {
  const isUsual = subject === undefined && dataschema === undefined && extensions.dataversion === undefined;
  return isUsual ? usualColumns : messageColumns;
}

/** The columns of a `MessageRecord`. The version is left out because the extensions contain it. */
export const selectedColumns = messageColumns.filter(([name]) => name !== "event_version");

/** The select list of a `MessageRecord`. A column is NULL if it equals its SQL expression in `common`. */
export function messageSelection(table: string, common: Partial<Record<MessageColumn, string>> = {}): string {
  return selectedColumns
    .map(([name, type]) => {
      const stored = `${table}.${name}`;
      const column = common[name] === undefined ? stored : `nullif(${stored}, ${common[name]})`;
      if (name === "data") return `CASE WHEN octet_length(${column}) <= ${mostDataBytes} THEN ${column} END AS ${name}`;
      return type === "jsonb" ? `${column}::text AS ${name}` : column;
    })
    .join(", ");
}
