import { PostboxError } from "../errors.js";

const codes: ReadonlySet<string> = new Set([
  "inbox-busy",
  "transaction-contended",
  "transaction-lost",
  "store-unavailable",
  "lane-lost",
]);

/** What others did, or the store could not: the same message may be handled as soon as that is over, and spends no attempt. */
export function isNobodysFault(error: unknown): boolean {
  return error instanceof PostboxError && codes.has(error.code);
}
