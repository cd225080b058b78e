import { ConfigError } from "../../errors.js";
import type { OptionRule } from "../../options.js";

const identifier = /^[A-Za-z_][A-Za-z0-9_]{0,62}$/;

/** A schema's name goes into statements as it stands, so nothing but a plain identifier is one. */
export const schemaRule: OptionRule = {
  expected: "a name of at most 63 letters, digits and _ that does not begin with a digit",
  test: (value) => typeof value === "string" && identifier.test(value),
};

export const defaultSchema = "postbox";

/** The boxes that the migrations make. */
const boxNames = ["outbox", "inbox"] as const;

/** Every name is quoted and carries its schema: no statement depends on a session's `search_path`. */
export interface BoxTables {
  /** The box's own name, as a literal. */
  readonly name: string;
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
  /** Of all boxes, as the next one. */
  readonly state: string;
  readonly audit: string;
}

export function boxTables(schema: string, box: string): BoxTables {
  const table = (part: keyof BoxTables) => `"${schema}"."${box}_${part}"`;
  return {
    name: `'${box}'`,
    pending: table("pending"),
    wait: table("wait"),
    hold: table("hold"),
    lane: table("lane"),
    member: table("member"),
    scheduled: table("scheduled"),
    parked: table("parked"),
    done: table("done"),
    overflow: table("overflow"),
    state: boxStateTable(schema),
    audit: auditTable(schema),
  };
}

/** Which versions of the schema have been applied. */
export function migrationTable(schema: string): string {
  return `"${schema}"."migration"`;
}

/** One row per box that was ever paused or cleaned. */
export function boxStateTable(schema: string): string {
  return `"${schema}"."box"`;
}

/** What operators have changed. */
export function auditTable(schema: string): string {
  return `"${schema}"."audit"`;
}

/** What consumers have handled. */
export function inboxTable(schema: string): string {
  return `"${schema}"."inbox_message"`;
}

/** Throws unless there is such a box: a statement on tables that do not exist would abort the caller's transaction. */
export function requireBox(box: string): void {
  if ((boxNames as readonly string[]).includes(box)) return;
  throw new ConfigError("option-invalid", `there is no box '${box}'; there are ${boxNames.join(", ")}`, {
    path: "box",
  });
}
