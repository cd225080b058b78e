import { type ErrorCode, PostboxError } from "postbox";
import { scrub } from "postbox/admin";
import { withCommand } from "./advice.js";
import { type ExitCode, exitCodes } from "./exit-codes.js";
import { plain } from "./plain-text.js";

/** A failure with an exit code of its own. The text says what, why, and what to do. */
export class CliError extends Error {
  override readonly name = "CliError";
  readonly exitCode: ExitCode;

  constructor(exitCode: ExitCode, text: string) {
    super(text);
    this.exitCode = exitCode;
  }
}

/** Wrong use of a command. */
export function wrongUse(text: string): CliError {
  return new CliError(exitCodes.usage, text);
}

const byCode: Partial<Record<ErrorCode, ExitCode>> = {
  "option-invalid": exitCodes.usage,
  "option-unknown": exitCodes.usage,
  "url-unsupported": exitCodes.usage,
  "driver-missing": exitCodes.usage,
  "message-invalid": exitCodes.usage,
  "message-too-large": exitCodes.usage,
  "store-unavailable": exitCodes.unreachable,
  "store-timeout": exitCodes.unreachable,
  "transport-down": exitCodes.unreachable,
  "publish-timeout": exitCodes.unreachable,
  "store-refused": exitCodes.refused,
  "transport-refused": exitCodes.refused,
  "schema-missing": exitCodes.schema,
  "schema-outdated": exitCodes.schema,
  "schema-newer": exitCodes.schema,
  "server-unsupported": exitCodes.schema,
};

/** Codes of errors of the network, at any driver. */
const network = /^(?:ECONNREFUSED|ECONNRESET|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|EPIPE)$/;

/** What a command says of an error, on one line without secrets, and its exit code. */
export interface Failure {
  readonly exitCode: ExitCode;
  readonly code: string;
  readonly text: string;
}

export function failureOf(thrown: unknown): Failure {
  if (thrown instanceof CliError) return { exitCode: thrown.exitCode, code: "usage", text: oneLine(thrown.message) };
  if (thrown instanceof PostboxError) {
    const exitCode = byCode[thrown.code] ?? (isNetworks(thrown.cause) ? exitCodes.unreachable : exitCodes.failed);
    return { exitCode, code: thrown.code, text: oneLine(withCommand(thrown.code, thrown.message)) };
  }
  const text = oneLine(thrown instanceof Error ? thrown.message || String(codeOf(thrown)) : String(thrown));
  if (!isNetworks(thrown)) return { exitCode: exitCodes.failed, code: "unknown", text };
  const advice = "check the URL, and that the server is running";
  return { exitCode: exitCodes.unreachable, code: "unreachable", text: `cannot reach the server: ${text}; ${advice}` };
}

function isNetworks(thrown: unknown): boolean {
  if (thrown instanceof AggregateError) return thrown.errors.some(isNetworks);
  return network.test(String(codeOf(thrown)));
}

function codeOf(thrown: unknown): unknown {
  if (thrown instanceof AggregateError && thrown.errors.length > 0) return codeOf(thrown.errors[0]);
  return (thrown as { readonly code?: unknown } | null | undefined)?.code;
}

function oneLine(text: string): string {
  return plain(scrub(text).replace(/\s*\n\s*/g, " "));
}
