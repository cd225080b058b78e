import type { OptionRule } from "../../options.js";
import { consumerOf } from "../box-names.js";

const identifier = /^[A-Za-z_][A-Za-z0-9_]{0,62}$/;

/** A schema's name goes into statements as it stands, so nothing but a plain identifier is one. */
export const schemaRule: OptionRule = {
  expected: "a name of at most 63 letters, digits and _ that does not begin with a digit",
  test: (value) => typeof value === "string" && identifier.test(value),
};

export const defaultSchema = "postbox";

/** Every name is quoted and carries its schema: no statement depends on a session's `search_path`. */
export interface BoxTables {
  /** The box's own name, as a literal. */
  readonly name: string;
  /** The consumer whose inbox it is, as a literal. Absent: it is the outbox. */
  readonly consumer?: string;
  /** The box's number, the column `box` of its rows: the inboxes of all consumers share their tables. */
  readonly box: number;
  readonly pending: string;
  readonly wait: string;
  readonly hold: string;
  readonly lane: string;
  readonly member: string;
  readonly scheduled: string;
  readonly parked: string;
  readonly done: string;
  /** What is done, and has no partition of `done`. */
  readonly overflow: string;
  /** All boxes, by number and name. The next ones are of all boxes, too. */
  readonly boxes: string;
  readonly audit: string;
  /** What consumers have taken over. */
  readonly memory: string;
  /** The sequence that positions are drawn from. */
  readonly positions: string;
  /** The one of scheduled messages. */
  readonly scheduledPositions: string;
  /** The function that says which server this is. */
  readonly server: string;
  /** A function of the box. */
  function(name: string): string;
}

/** The number of the outbox. Those of the inboxes are greater. */
export const outboxNumber = 0;

/** The tables of a box, with its number. */
export function boxTables(schema: string, name: string, box: number = outboxNumber): BoxTables {
  const consumer = consumerOf(name);
  const tables = { ...tablesOf(schema, name), name: literal(name), box };
  return consumer === undefined ? tables : { ...tables, consumer: literal(consumer) };
}

/** The tables that the rows of a box are in, among those of others. */
export function tablesOf(schema: string, name: string): ReturnType<typeof tablesNamed> {
  return tablesNamed(schema, consumerOf(name) === undefined ? "outbox" : "inbox");
}

/** Any text, whatever `standard_conforming_strings` says. */
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

/** Which versions of the schema have been applied. */
export function migrationTable(schema: string): string {
  return `"${schema}"."migration"`;
}

/** All boxes: the outbox, and the inbox of each consumer. */
export function boxTable(schema: string): string {
  return `"${schema}"."box"`;
}

/** How far each schedule has come. */
export function scheduleTable(schema: string): string {
  return `"${schema}"."schedule"`;
}

/** What operators have changed. */
export function auditTable(schema: string): string {
  return `"${schema}"."audit"`;
}

/** What consumers have taken over: handled, or kept in their boxes. */
export function inboxTable(schema: string): string {
  return `"${schema}"."inbox_message"`;
}
