import { ConfigError, PermanentError, PostboxError } from "../errors.js";

/** The store cannot do its part. */
const storeCodes: ReadonlySet<string> = new Set([
  "transaction-lost",
  "store-unavailable",
  "store-failed",
  "store-refused",
  "store-closed",
  "databases-differ",
  "schema-missing",
  "schema-outdated",
  "schema-newer",
]);
/** Another process is handling the message or conflicted with it, or this instance has no handler for it. */
const otherCodes: ReadonlySet<string> = new Set([
  "inbox-busy",
  "transaction-conflict",
  "delivery-revoked",
  "no-handler",
]);

const thrownByHandlers = new WeakSet<object>();

/**
 * Marks an error as thrown by a handler. A handler may use other stores and libraries, so its error counts against the
 * message even if it looks like an error of the surrounding store.
 */
export function thrownByHandler(thrown: unknown): unknown {
  if (thrown instanceof PostboxError) thrownByHandlers.add(thrown);
  return thrown;
}

/**
 * Whether a message failed for a reason outside of it. It can be handled once the reason is gone, or elsewhere, and
 * spends no attempt.
 */
export function isTransient(error: unknown): error is PostboxError {
  return isStoreFailure(error) || has(otherCodes, error);
}

/**
 * Whether the message failed because the surrounding store cannot do its part. Then no other message can be handled
 * either.
 */
export function isStoreFailure(error: unknown): error is PostboxError {
  return has(storeCodes, error);
}

function has(codes: ReadonlySet<string>, error: unknown): error is PostboxError {
  if (error instanceof PermanentError || error instanceof ConfigError) return false;
  return error instanceof PostboxError && codes.has(error.code) && !thrownByHandlers.has(error);
}
