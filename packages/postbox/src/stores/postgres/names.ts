import type { OptionRule } from "../../options.js";
import { consumerOf } from "../box-names.js";

const identifier = /^[A-Za-z_][A-Za-z0-9_]{0,62}$/;

/** A schema name is inserted into statements unescaped, so it has to be a plain identifier. */
export const schemaRule: OptionRule = {
  expected: "a name of at most 63 letters, digits and _ that does not begin with a digit",
  test: (value) => typeof value === "string" && identifier.test(value),
};

export const defaultSchema = "postbox";

/** Names, all quoted and schema-qualified: no statement depends on a session's `search_path`. */
export interface BoxTables {
  /** The box's name, as a literal. */
  readonly name: string;
  /** The consumer of an inbox, as a literal. Absent for the outbox. */
  readonly consumer?: string;
  /** The box's number, the column `box` of its rows. The inboxes of all consumers share their tables. */
  readonly box: number;
  readonly pending: string;
  readonly wait: string;
  readonly hold: string;
  readonly lane: string;
  readonly member: string;
  readonly scheduled: string;
  readonly parked: string;
  readonly done: string;
  /** Sent rows for which `done` has no partition. */
  readonly overflow: string;
  /** The numbers and names of all boxes. The tables below are shared by all boxes, too. */
  readonly boxes: string;
  readonly audit: string;
  /** What consumers have accepted. */
  readonly memory: string;
  /** The sequence of positions. */
  readonly positions: string;
  /** The sequence of the positions of scheduled messages. */
  readonly scheduledPositions: string;
  /** The function that identifies the server. */
  readonly server: string;
  /** The qualified name of a function of the box. */
  function(name: string): string;
}

/** The number of the outbox. The numbers of inboxes are greater. */
export const outboxNumber = 0;

/** The tables of a box, with its number. */
export function boxTables(schema: string, name: string, box: number = outboxNumber): BoxTables {
  const consumer = consumerOf(name);
  const tables = { ...tablesOf(schema, name), name: literal(name), box };
  return consumer === undefined ? tables : { ...tables, consumer: literal(consumer) };
}

/** The tables that hold the rows of a box, among rows of other boxes. */
export function tablesOf(schema: string, name: string): ReturnType<typeof tablesNamed> {
  return tablesNamed(schema, consumerOf(name) === undefined ? "outbox" : "inbox");
}

/** Quotes any text, whatever `standard_conforming_strings` is. */
function literal(text: string): string {
  return `E'${text.replaceAll("\\", "\\\\").replaceAll("'", "''")}'`;
}

export function tablesNamed(schema: string, box: "outbox" | "inbox"): Omit<BoxTables, "name" | "consumer" | "box"> {
  const table = (part: string) => `"${schema}"."${box}_${part}"`;
  return {
    pending: table("pending"),
    wait: table("wait"),
    hold: table("hold"),
    lane: table("lane"),
    member: table("member"),
    scheduled: table("scheduled"),
    parked: table("parked"),
    done: table("done"),
    overflow: table("overflow"),
    boxes: boxTable(schema),
    audit: auditTable(schema),
    memory: inboxTable(schema),
    positions: `"${schema}"."${box}_pending_position_seq"`,
    scheduledPositions: `"${schema}"."${box}_scheduled_position_seq"`,
    server: `"${schema}".server`,
    function: (name) => `"${schema}"."${box}_${name}"`,
  };
}

/** The applied versions of the schema. */
export function migrationTable(schema: string): string {
  return `"${schema}"."migration"`;
}

/** All boxes: the outbox, and the inbox of each consumer. */
export function boxTable(schema: string): string {
  return `"${schema}"."box"`;
}

/** The progress of each schedule. */
export function scheduleTable(schema: string): string {
  return `"${schema}"."schedule"`;
}

/** The changes that operators have made. */
export function auditTable(schema: string): string {
  return `"${schema}"."audit"`;
}

/** The messages that consumers have accepted: handled, or stored in their boxes. */
export function inboxTable(schema: string): string {
  return `"${schema}"."inbox_message"`;
}
