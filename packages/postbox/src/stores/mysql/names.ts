import type { OptionRule } from "../../options.js";

/** The tables of a store, quoted and with their database, so that they are found from a session of any database. */
export type Tables = Readonly<Record<(typeof names)[number], string>>;

const names = [
  "version",
  "box",
  "lane",
  "member",
  "writer",
  "lock",
  "pending",
  "waiting",
  "hold",
  "scheduled",
  "parked",
  "done",
  "handled",
  "schedule",
  "audit",
] as const;

/** The number of the outbox. */
export const outboxNumber = 1;

export const databaseRule: OptionRule = {
  expected: "the name of a database: up to 64 letters, digits, and $ or _",
  test: (value) => typeof value === "string" && /^[\p{L}\p{N}$_-]{1,64}$/u.test(value),
};

/** Without a database, they are those of the session's database. */
export function tablesIn(database: string | undefined): Tables {
  const prefix = database === undefined ? "" : `\`${database.replaceAll("`", "``")}\`.`;
  return Object.fromEntries(names.map((name) => [name, `${prefix}\`postbox_${name}\``])) as Tables;
}

/**
 * The server's clock in microseconds since 1970. It is computed from UTC: in a session's own time zone, an hour of the
 * year comes twice.
 */
export const nowSql = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/** A stored time in ms. Those of the next centuries are exact; later ones are rounded, as numbers allow no more. */
export function msOf(stored: unknown): number {
  const us = Number(stored);
  return Math.abs(us) <= Number.MAX_SAFE_INTEGER ? us / 1000 : Math.round(us / 1000);
}

/** A time in ms as it is stored. */
export function storedTime(ms: number): string {
  const whole = Math.floor(ms);
  return String(BigInt(whole) * 1000n + BigInt(Math.round((ms - whole) * 1000)));
}
