import { createHash } from "node:crypto";
import type { Message } from "../../message/message.js";

/**
 * The advisory locks that serialize appends to the keys of these messages. Each number occurs once and in ascending
 * order, so that no two statements deadlock. Two keys that share a number by chance only wait unnecessarily.
 */
export function keyLocks(schema: string, box: string, messages: readonly Message[]): string[] {
  const keys = new Set(messages.flatMap(({ key }) => key ?? []));
  const numbers = new Set([...keys].map((key) => lockOf(schema, box, key)));
  return [...numbers].sort((a, b) => (a < b ? -1 : 1)).map(String);
}

function lockOf(schema: string, box: string, key: string): bigint {
  return createHash("sha256")
    .update(JSON.stringify([schema, box, key]))
    .digest()
    .readBigInt64BE();
}
