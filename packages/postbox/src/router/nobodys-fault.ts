import { ConfigError, PermanentError, PostboxError } from "../errors.js";

const codes: ReadonlySet<string> = new Set([
  "inbox-busy",
  "transaction-contended",
  "transaction-lost",
  "store-unavailable",
  "store-failed",
  "store-refused",
  "store-closed",
  "schema-missing",
  "schema-outdated",
  "schema-newer",
  "lane-lost",
  "no-handler",
]);

/**
 * What others did, the store could not, or this instance has no handler for: the same message may be handled as soon as that is over, or
 * elsewhere, and spends no attempt. What can never succeed is none of these.
 */
export function isNobodysFault(error: unknown): boolean {
  if (error instanceof PermanentError || error instanceof ConfigError) return false;
  return error instanceof PostboxError && codes.has(error.code);
}
