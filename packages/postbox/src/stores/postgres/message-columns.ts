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

/** Those that most messages have no more than: the others need not be sent as nothing. */
export const usualColumns: typeof messageColumns = messageColumns.filter(([name]) => !rare.has(name));

/** The columns of this message. */
export function columnsOf({ subject, dataschema, extensions }: Message): typeof messageColumns {
  const isUsual = subject === undefined && dataschema === undefined && extensions.dataversion === undefined;
  return isUsual ? usualColumns : messageColumns;
}

/** The columns of a `MessageRecord`: the version is among the extensions, too. */
export const selectedColumns = messageColumns.filter(([name]) => name !== "event_version");

/** The select list that makes a `MessageRecord`. A column is NULL where it holds what `common` says, a SQL expression. */
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
