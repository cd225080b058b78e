import { ConfigError, PermanentError, PostboxError } from "../errors.js";

/** The store cannot do its part. */
const storeCodes: ReadonlySet<string> = new Set([
  "transaction-lost",
  "store-unavailable",
  "store-failed",
  "store-refused",
  "store-closed",
  "schema-missing",
  "schema-outdated",
  "schema-newer",
]);
/** Another process is at work on it, or ran into it, or this instance has no handler for it. */
const otherCodes: ReadonlySet<string> = new Set([
  "inbox-busy",
  "transaction-conflict",
  "delivery-revoked",
  "no-handler",
]);

const thrownByHandlers = new WeakSet<object>();

/**
 * Notes that a handler has thrown this. A handler may work on other stores and with other libraries: whatever it throws
 * is the message's own failure, although it may look like one of the store that surrounds the handler.
 */
export function thrownByHandler(thrown: unknown): unknown {
  if (thrown instanceof PostboxError) thrownByHandlers.add(thrown);
  return thrown;
}

/**
 * Whether a message failed for a reason outside of it: the same message may be handled as soon as that is over, or
 * elsewhere, and spends no attempt.
 */
export function isTransient(error: unknown): error is PostboxError {
  return isStoreFailure(error) || has(otherCodes, error);
}

/**
 * Whether it failed because the store around its handler cannot do its part: then no other message can be handled
 * either.
 */
export function isStoreFailure(error: unknown): error is PostboxError {
  return has(storeCodes, error);
}

function has(codes: ReadonlySet<string>, error: unknown): error is PostboxError {
  if (error instanceof PermanentError || error instanceof ConfigError) return false;
  return error instanceof PostboxError && codes.has(error.code) && !thrownByHandlers.has(error);
}
