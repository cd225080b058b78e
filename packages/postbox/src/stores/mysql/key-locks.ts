import { createHash } from "node:crypto";
import type { Tables } from "./names.js";
import { lockCount } from "./schema.js";

/**
 * Locks by name, held until the transaction ends. A name is a row of `postbox_lock`, chosen by its hash, so two names
 * may share one: then their transactions wait for each other without need. One statement takes all locks in one order.
 */
export function lockSql(t: Tables, names: readonly string[]): string {
  const numbers = [...new Set(names.map(lockOf))].sort((one, other) => one - other);
  return `SELECT number FROM ${t.lock} FORCE INDEX (PRIMARY) WHERE number IN (${numbers.join(", ")})
    ORDER BY number FOR UPDATE`;
}

function lockOf(name: string): number {
  return createHash("sha256").update(name).digest().readUInt32BE(0) % lockCount;
}
