import { PermanentError, PostboxError, TransportDownError } from "../errors.js";
import type { Runtime } from "../internal/runtime.js";
import { withTimeout } from "../internal/with-timeout.js";
import type { Row } from "../store.js";
import type { Outcome, Sender } from "../transport.js";
import type { Carrier, Dispatched } from "./carrier.js";
import { createPace, type PaceOptions } from "./pace.js";

type Report = (row: Row, outcome: Outcome) => void;

/** Carries rows to a sender, which has `publishTimeoutMs` for each batch; more, and for fewer rows, after a timeout. */
export function carrierTo(sender: Sender, options: PaceOptions & { readonly runtime: Runtime }): Carrier {
  const { runtime } = options;
  const pace = createPace(options);

  async function carry(batch: readonly Row[], report: Report): Promise<Dispatched> {
    const startedAt = runtime.monotonic();
    const dispatched = await dispatch(batch, sender, pace.timeoutMs, runtime, report);
    if (dispatched.down?.code === "publish-timeout") pace.timedOut(batch.length);
    else if (dispatched.down === undefined) pace.answered(runtime.monotonic() - startedAt);
    return dispatched;
  }

  return {
    name: sender.name,
    keepsOrder: sender.keepsOrder,
    oneByOne: false,
    most: () => pace.most,
    connect: async (signal) => sender.connect?.(signal),
    carry,
  };
}

async function dispatch(
  batch: readonly Row[],
  sender: Sender,
  timeoutMs: number,
  runtime: Runtime,
  report: Report,
): Promise<Dispatched> {
  if (batch.length === 0) return { undecided: [] };
  const open = new Set(batch);
  /** Given back without an outcome. A confirmation that comes later still counts; any other outcome is that of the next try. */
  const unknown = new Set<Row>();
  const failedKeys = new Set<string | undefined>();
  const late = () =>
    new PostboxError(
      "publish-timeout",
      `${sender.name} did not confirm ${open.size} messages within ${timeoutMs} ms; the relay sends them again unless they are confirmed first`,
    );
  const settled = (index: number, outcome: Outcome) => {
    const row = batch[index];
    if (row === undefined) return;
    if (open.delete(row)) report(row, outcome);
    else if (outcome.status === "sent" && unknown.delete(row)) report(row, outcome);
  };
  const messages = batch.map(({ message }) => message);
  try {
    await withTimeout(runtime, timeoutMs, late, (signal) => sender.send(messages, settled, signal));
    // A sender that forgets a message must not make the relay send it for ever.
    for (const row of batch) if (open.delete(row)) report(row, unreported(sender));
    return { undecided: [] };
  } catch (cause) {
    const undecided = batch.filter((row) => open.has(row));
    open.clear();
    if (isOutage(cause)) {
      for (const row of undecided) unknown.add(row);
      const died = cause instanceof TransportDownError && cause.during === "send";
      return { undecided, down: PostboxError.from(cause, "transport-down"), died };
    }
    // Anything else comes from one of the messages. Halving finds out which, and the others are sent.
    const [only] = undecided;
    if (only === undefined) return { undecided: [] };
    if (undecided.length === 1) {
      report(only, thrownFor(sender, cause));
      return { undecided: [] };
    }
    const half = Math.ceil(undecided.length / 2);
    const watching: Report = (row, outcome) => {
      if (outcome.status !== "sent") failedKeys.add(row.message.key);
      report(row, outcome);
    };
    const first = await dispatch(undecided.slice(0, half), sender, timeoutMs, runtime, watching);
    const rest = undecided.slice(half);
    if (first.down !== undefined) return { ...first, undecided: [...first.undecided, ...rest] };
    // What is behind a failed one of its key is not sent.
    const isBehind = ({ message: { key } }: Row) => key !== undefined && failedKeys.has(key);
    const second = await dispatch(
      rest.filter((row) => !isBehind(row)),
      sender,
      timeoutMs,
      runtime,
      report,
    );
    return { ...second, undecided: [...first.undecided, ...rest.filter(isBehind), ...second.undecided] };
  }
}

/** Whether a sender failed because it does not reach its broker, and not because of a message. */
function isOutage(cause: unknown): boolean {
  if (cause instanceof PostboxError) {
    return (
      cause instanceof TransportDownError || cause.code.startsWith("transport-") || cause.code === "publish-timeout"
    );
  }
  const { name, code, errors } = (cause ?? {}) as { name?: unknown; code?: unknown; errors?: unknown };
  if (name === "AbortError" || name === "TimeoutError") return true;
  if (Array.isArray(errors) && errors.some(isOutage)) return true;
  return typeof code === "string" && networkErrors.test(code);
}

/** As Node names what becomes of sockets and names of hosts. */
const networkErrors = /^(E(CONN|HOST|NET|PIPE|TIMEDOUT|AI_|NOTFOUND|ADDR|SOCKET)|ERR_(SOCKET|STREAM|TLS|SSL)|UND_ERR_)/;

function thrownFor(sender: Sender, cause: unknown): Outcome {
  if (cause instanceof PermanentError) return { status: "rejected", error: cause };
  const text = cause instanceof Error ? cause.message : String(cause);
  const error = new PostboxError("publish-failed", `${sender.name} threw while it sent this message: ${text}`, {
    cause,
  });
  return { status: "failed", error };
}

function unreported(sender: Sender): Outcome {
  const text = `${sender.name} reported no outcome of this message; it is tried again`;
  return { status: "failed", error: new PostboxError("publish-failed", text) };
}
