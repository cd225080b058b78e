/**
 * Every code an error of Postbox can carry. Codes are stable: branch on `error.code`, never on the text. Each has a
 * line in docs/guides/troubleshooting.md, with its cause and what to do. Each code calls for a different reaction
 * by the caller or the operator.
 */
export type ErrorCode =
  // Wrong use, detected when something is made or registered.
  | "option-unknown"
  | "option-invalid"
  | "event-invalid"
  | "json-schema-missing"
  | "middleware-order"
  | "handler-exists"
  | "already-started"
  // Messages and their data.
  | "message-invalid"
  | "message-too-large"
  | "content-type-unknown"
  | "data-invalid"
  | "upcast-failed"
  // Handling.
  | "no-handler"
  | "outputs-unpublished"
  | "message-expired"
  | "handler-timeout"
  | "handler-slow"
  | "delivery-settled"
  | "delivery-revoked"
  | "stop-timeout"
  | "attempts-spent"
  | "message-suspect"
  | "inbox-busy"
  | "message-id-missing"
  | "message-differs"
  | "message-too-old"
  | "permanent"
  // Transactions and stores.
  | "transaction-missing"
  | "transaction-nested"
  | "transaction-conflict"
  | "transaction-lost"
  | "transaction-ended"
  | "not-a-transaction"
  | "not-awaited"
  | "commit-rolled-back"
  | "schema-missing"
  | "schema-outdated"
  | "schema-newer"
  | "server-unsupported"
  | "store-failed"
  | "store-timeout"
  | "store-unavailable"
  | "store-refused"
  | "store-closed"
  | "databases-differ"
  // Transports.
  | "unroutable"
  | "transport-down"
  | "transport-refused"
  | "topology-missing"
  | "topology-differs"
  | "publish-failed"
  | "publish-timeout"
  | "url-unsupported"
  | "driver-missing"
  // Tests of your own service, with the testkit.
  | "not-settled"
  // Any error that is not Postbox's own.
  | "unknown";

/** Options of a `PostboxError`. */
export interface ErrorDetails {
  /** What caused this error; never flattened into the text. */
  readonly cause?: unknown;
  /** The faulty part of the input, for example `data.items[2].price`. */
  readonly path?: string;
}

/** The base of every error that Postbox throws. The text reads "what: why; what to do", prefixed with the code. */
export class PostboxError extends Error {
  override readonly name: string = "PostboxError";
  readonly code: ErrorCode;
  readonly path: string | undefined;

  constructor(code: ErrorCode, text: string, details: ErrorDetails = {}) {
    super(`[${code}] ${text}`, details.cause === undefined ? undefined : { cause: details.cause });
    this.code = code;
    this.path = details.path;
  }

  /** The error itself if it is one of Postbox's; otherwise a new one with the thrown value as its cause. */
  static from(thrown: unknown, code: ErrorCode = "unknown"): PostboxError {
    try {
      if (thrown instanceof PostboxError) return thrown;
      return new PostboxError(code, thrown instanceof Error ? `${thrown.message}` : String(thrown), { cause: thrown });
    } catch {
      return new PostboxError(code, "something was thrown that cannot be shown");
    }
  }
}

/** Wrong use: an option, an order of middleware, a definition. Thrown at once, where the mistake is made. */
export class ConfigError extends PostboxError {
  override readonly name = "ConfigError";
}

/**
 * This message can never succeed, so it is parked at once instead of being retried. Throw it from a handler, or let a
 * Sender report it as `rejected`.
 */
export class PermanentError extends PostboxError {
  override readonly name = "PermanentError";

  constructor(text: string, details?: ErrorDetails & { readonly code?: ErrorCode }) {
    super(details?.code ?? "permanent", text, details);
  }
}

/**
 * The transport cannot be reached, or its connection was lost. No message spends an attempt. With `during: "send"`,
 * messages in flight may or may not have arrived.
 */
export class TransportDownError extends PostboxError {
  override readonly name = "TransportDownError";
  readonly during: "connect" | "send";

  constructor(during: "connect" | "send", text: string, details?: ErrorDetails) {
    super("transport-down", text, details);
    this.during = during;
  }
}

/** Some messages of a direct publish were not sent; `failures` says which and why. The others were sent. */
export class PublishError extends PostboxError {
  override readonly name = "PublishError";
  readonly failures: readonly { readonly index: number; readonly id: string; readonly error: Error }[];

  constructor(failures: PublishError["failures"], total: number) {
    const first = failures[0];
    super(
      "publish-failed",
      `${failures.length} of ${total} messages were not sent: ${first?.error.message ?? "no outcome was reported"}; ` +
        "publish those in `failures` again with the same ids",
      { cause: first?.error },
    );
    this.failures = failures;
  }
}
