import { PermanentError, PostboxError, TransportDownError } from "../../errors.js";
import { reasonOf } from "../../internal/reason-of.js";
import type { Runtime } from "../../internal/runtime.js";
import { withTimeout } from "../../internal/with-timeout.js";
import type { Row } from "../../store.js";
import type { Outcome, Sender } from "../../transport.js";
import type { DrainContext } from "../context.js";
import type { Dispatched, SendOutcome, Target } from "../target.js";
import { createPace, type PaceOptions } from "./pace.js";
import { createScopes, type Scopes } from "./scopes.js";

type Report = (row: Row, outcome: SendOutcome) => void;

type TargetOptions = PaceOptions & Pick<DrainContext, "boxName" | "backoff" | "telemetry">;

/**
 * A target that gives rows to a sender. The sender has `publishTimeoutMs` for each batch; after a timeout it has
 * longer, for fewer rows.
 */
export function targetTo(sender: Sender, options: TargetOptions): Target {
  const { runtime } = options;
  const pace = createPace(options);
  const scopes = createScopes({ ...options, sender });
  const to: Destination = { sender, scopes, runtime };

  async function handOver(batch: readonly Row[], report: Report): Promise<Dispatched> {
    const startedAt = runtime.monotonic();
    const dispatched = await dispatch(batch, to, pace.timeoutMs, report);
    if (dispatched.down?.code === "publish-timeout") pace.timedOut(batch.length, startedAt);
    else if (dispatched.down === undefined) pace.answered(runtime.monotonic() - startedAt);
    return dispatched;
  }

  return {
    name: sender.name,
    keepsOrder: sender.keepsOrder,
    oneByOne: false,
    most: () => pace.most,
    connect: async (signal) => sender.connect?.(signal),
    refuses({ message }) {
      const closed = scopes.closedTo(message);
      return closed && { status: "unavailable", ...closed };
    },
    handOver,
  };
}

interface Destination {
  readonly sender: Sender;
  readonly scopes: Scopes;
  readonly runtime: Runtime;
}

async function dispatch(
  batch: readonly Row[],
  to: Destination,
  timeoutMs: number,
  report: Report,
): Promise<Dispatched> {
  const { sender, scopes, runtime } = to;
  if (batch.length === 0) return { undecided: [] };
  /** By index, the messages without an outcome. */
  const open = batch.map(() => true);
  let left = batch.length;
  const close = (index: number): boolean => {
    if (!open[index]) return false;
    open[index] = false;
    left--;
    return true;
  };
  /**
   * Rows returned without an outcome. A confirmation that comes later still counts; any other outcome is that of the
   * next attempt.
   */
  const unknown = new Set<Row>();
  const failedKeys = new Set<string | undefined>();
  const late = () =>
    new PostboxError(
      "publish-timeout",
      `${sender.name} did not confirm ${left} messages within ${timeoutMs} ms; ` +
        "they stay stored, and a relay sends them again unless they are confirmed first",
    );
  const settled = (index: number, told: Outcome) => {
    const row = batch[index];
    if (row === undefined) return;
    const outcome = scoped(row, sound(told, sender), scopes);
    if (close(index)) {
      if (holdsKey(outcome)) failedKeys.add(row.message.key);
      report(row, outcome);
    } else if (outcome.status === "sent" && unknown.delete(row)) report(row, outcome);
  };
  const messages = batch.map(({ message }) => message);
  try {
    await withTimeout(runtime, timeoutMs, late, (signal) => sender.send(messages, settled, signal));
    // A sender that never reports a message must not make the relay send it for ever.
    if (left > 0) for (const [index, row] of batch.entries()) if (close(index)) report(row, unreported(sender));
    return { undecided: [] };
  } catch (cause) {
    const undecided = batch.filter((_, index) => open[index]);
    open.fill(false);
    if (isOutage(cause)) {
      for (const row of undecided) unknown.add(row);
      const died = cause instanceof TransportDownError && cause.during === "send";
      return { undecided, down: PostboxError.from(cause, "transport-down"), died };
    }
    // Any other error is caused by one of the messages. Halving the batch finds that one, and the others are sent.
    // Messages behind a failed one of their key are not sent.
    const isBehind = ({ message: { key } }: Row) => key !== undefined && failedKeys.has(key);
    const behind = undecided.filter(isBehind);
    const others = undecided.filter((row) => !isBehind(row));
    const [only] = others;
    if (only === undefined) return { undecided: behind };
    if (others.length === 1) {
      report(only, thrownFor(sender, cause));
      return { undecided: behind };
    }
    const half = Math.ceil(others.length / 2);
    const watching: Report = (row, outcome) => {
      if (holdsKey(outcome)) failedKeys.add(row.message.key);
      report(row, outcome);
    };
    const first = await dispatch(others.slice(0, half), to, timeoutMs, watching);
    const rest = others.slice(half);
    if (first.down !== undefined) return { ...first, undecided: [...behind, ...first.undecided, ...rest] };
    const second = await dispatch(
      rest.filter((row) => !isBehind(row)),
      to,
      timeoutMs,
      report,
    );
    return { ...second, undecided: [...behind, ...first.undecided, ...rest.filter(isBehind), ...second.undecided] };
  }
}

/** Whether later rows of its key must wait for it. */
function holdsKey({ status }: SendOutcome): boolean {
  return status !== "sent";
}

/** Adds the time until the next try, if the destination is unavailable. */
function scoped({ message }: Row, outcome: Outcome, scopes: Scopes): SendOutcome {
  if (outcome.status === "sent") scopes.sent(message);
  if (outcome.status !== "unavailable") return outcome;
  return { ...outcome, retryInMs: scopes.failed(message, outcome.error) };
}

/** Whether a sender failed because its broker is unreachable, and not because of a message. */
function isOutage(cause: unknown): boolean {
  try {
    return saysOutage(cause, 3);
  } catch {
    // An error whose properties throw reveals nothing.
    return false;
  }
}

function saysOutage(cause: unknown, depth: number): boolean {
  if (cause instanceof PostboxError) {
    return (
      cause instanceof TransportDownError || cause.code.startsWith("transport-") || cause.code === "publish-timeout"
    );
  }
  const { code, errors } = (cause ?? {}) as { code?: unknown; errors?: unknown };
  if (depth > 0 && Array.isArray(errors) && errors.some((each) => saysOutage(each, depth - 1))) return true;
  return typeof code === "string" && networkErrors.test(code);
}

/** Codes of Node.js and undici for sockets, TLS and name resolution. */
const networkErrors = /^(E(CONN|HOST|NET|PIPE|TIMEDOUT|AI_|NOTFOUND|ADDR|SOCKET)|ERR_(SOCKET|STREAM|TLS|SSL)|UND_ERR_)/;

function thrownFor(sender: Sender, cause: unknown): SendOutcome {
  if (isPermanentError(cause)) return { status: "rejected", error: cause };
  const text = `${sender.name} threw while it sent this message: ${reasonOf(cause)}`;
  return { status: "failed", error: new PostboxError("publish-failed", text, { cause }) };
}

const notSent: ReadonlySet<unknown> = new Set(["failed", "unavailable", "rejected", "dropped"]);

/** Validates an outcome: a sender is user code, and may report anything that it has caught. */
function sound(told: Outcome, sender: Sender): Outcome {
  try {
    if (told.status === "sent") return told;
    if (notSent.has(told.status)) {
      if (told.error instanceof Error && typeof told.error.message === "string") return told;
      const text = `${sender.name} did not send this message: ${reasonOf(told.error)}`;
      return { ...told, error: new PostboxError("publish-failed", text, { cause: told.error }) };
    }
  } catch {
    // Reported below.
  }
  const text = `${sender.name} reported an invalid outcome; the relay sends the message again`;
  return { status: "failed", error: new PostboxError("publish-failed", text) };
}

function isPermanentError(cause: unknown): cause is PermanentError {
  try {
    return cause instanceof PermanentError;
  } catch {
    return false;
  }
}

function unreported(sender: Sender): SendOutcome {
  const text = `${sender.name} reported no outcome of this message; the relay sends it again`;
  return { status: "failed", error: new PostboxError("publish-failed", text) };
}
