import { PostboxError } from "postbox";

/** A published message that no handler has finished. */
export interface UnhandledMessage {
  /**
   * `retrying`: it failed and will be tried again. `parked`: it failed for good. `waiting`: it is behind an earlier
   * message of its key.
   */
  readonly status: "retrying" | "parked" | "waiting";
  /**
   * The consumer that failed. Absent if the relay could not send it, for example because no consumer handles its type.
   */
  readonly consumer?: string;
  readonly type: string;
  readonly id: string;
  /** The text of the last error, if there is one. */
  readonly error?: string;
  /** When the next attempt is due, in ms of the store's clock; absent if there is none. */
  readonly retryInMs?: number;
}

/** The error with which `settled()` rejects. Its `cause` is the error of the first failed handler, if it is known. */
export class NotSettledError extends PostboxError {
  override readonly name = "NotSettledError";
  /** Those that failed come first, then those that wait behind them. */
  readonly messages: readonly UnhandledMessage[];

  constructor(what: string, messages: readonly UnhandledMessage[], cause?: unknown) {
    super("not-settled", [what, ...messages.map((message) => `  - ${sentence(message)}`)].join("\n"), { cause });
    this.messages = messages;
  }
}

function sentence({ status, consumer, type, id, error, retryInMs }: UnhandledMessage): string {
  const message = `${type} (${id})`;
  const why = error === undefined ? "" : `: ${error}`;
  const next = retryInMs === undefined ? "" : `; due again in ${retryInMs} ms`;
  if (status === "waiting") return `${message} waits behind an earlier message of its key${next}`;
  if (consumer === undefined) return `${message} was not sent${why}${next}${unroutableAdvice(error)}`;
  if (status === "parked") return `consumer ${consumer} parked ${message}${why}`;
  return `consumer ${consumer} failed to handle ${message}${why}${next}`;
}

function unroutableAdvice(error = ""): string {
  return error.includes("[unroutable]")
    ? "; register a handler for it, or list its event in 'handledElsewhere' if another service handles it"
    : "";
}
