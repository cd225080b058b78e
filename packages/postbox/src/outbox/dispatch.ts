import { PostboxError, TransportDownError } from "../errors.js";
import type { Runtime } from "../internal/runtime.js";
import { withTimeout } from "../internal/with-timeout.js";
import type { Row } from "../store.js";
import type { Outcome, Sender } from "../transport.js";
import type { Carrier, Dispatched } from "./carrier.js";

/** Carries rows to a sender, which has `publishTimeoutMs` for each batch. */
export function carrierTo(sender: Sender, publishTimeoutMs: number, runtime: Runtime): Carrier {
  return {
    name: sender.name,
    keepsOrder: sender.keepsOrder,
    oneByOne: false,
    connect: async (signal) => sender.connect?.(signal),
    carry: (batch, report) => dispatch(batch, sender, publishTimeoutMs, runtime, report),
  };
}

async function dispatch(
  batch: readonly Row[],
  sender: Sender,
  publishTimeoutMs: number,
  runtime: Runtime,
  report: (row: Row, outcome: Outcome) => void,
): Promise<Dispatched> {
  const open = new Set(batch);
  const late = () =>
    new PostboxError(
      "publish-timeout",
      `${sender.name} did not confirm ${open.size} messages within ${publishTimeoutMs} ms; they are sent again`,
    );
  const settled = (index: number, outcome: Outcome) => {
    const row = batch[index];
    // Once each; and after a timeout the rows are somebody else's business: a late report must not settle them.
    if (row !== undefined && open.delete(row)) report(row, outcome);
  };
  const messages = batch.map(({ message }) => message);
  try {
    await withTimeout(runtime, publishTimeoutMs, late, (signal) => sender.send(messages, settled, signal));
    // A sender that forgets a message must not make the relay send it for ever.
    for (const row of batch) if (open.delete(row)) report(row, unreported(sender));
    return { undecided: [] };
  } catch (cause) {
    const undecided = batch.filter((row) => open.has(row));
    open.clear();
    const died = cause instanceof TransportDownError && cause.during === "send";
    return { undecided, down: PostboxError.from(cause, "transport-down"), died };
  }
}

function unreported(sender: Sender): Outcome {
  const text = `${sender.name} reported no outcome of this message; it is tried again`;
  return { status: "failed", error: new PostboxError("publish-failed", text) };
}
