import { PostboxError, TransportDownError } from "../errors.js";
import type { Runtime } from "../internal/runtime.js";
import { withTimeout } from "../internal/with-timeout.js";
import type { Row } from "../store.js";
import type { Outcome, Sender } from "../transport.js";

/** What became of each row that was sent, and the reason where the transport went down in the middle. */
export interface Dispatched {
  readonly outcomes: ReadonlyMap<Row, Outcome>;
  /** Rows without an outcome may or may not have arrived; none of them spends an attempt. */
  readonly down?: PostboxError;
}

/**
 * Sends rows in order of position. Where the sender does not keep the order of a key by itself, only one message of a
 * key is on its way at a time, and none behind one that failed.
 */
export async function dispatch(
  rows: readonly Row[],
  sender: Sender,
  publishTimeoutMs: number,
  runtime: Runtime,
): Promise<Dispatched> {
  const outcomes = new Map<Row, Outcome>();
  const failedKeys = new Set<string>();
  for (const wave of sender.keepsOrder ? [rows] : wavesByKey(rows)) {
    const sendable = wave.filter((row) => row.message.key === undefined || !failedKeys.has(row.message.key));
    const down = await sendOnce(sendable, sender, publishTimeoutMs, runtime, outcomes);
    if (down !== undefined) return { outcomes, down };
    for (const row of sendable) {
      if (outcomes.get(row)?.status === "failed" && row.message.key !== undefined) failedKeys.add(row.message.key);
    }
  }
  return { outcomes };
}

async function sendOnce(
  rows: readonly Row[],
  sender: Sender,
  publishTimeoutMs: number,
  runtime: Runtime,
  outcomes: Map<Row, Outcome>,
): Promise<PostboxError | undefined> {
  if (rows.length === 0) return undefined;
  let open = true;
  const late = () =>
    new TransportDownError("send", `${sender.name} did not confirm within ${publishTimeoutMs} ms; it is tried again`);
  const settled = (index: number, outcome: Outcome) => {
    const row = rows[index];
    // After a timeout the rows are somebody else's business: a late report must not settle them.
    if (open && row !== undefined) outcomes.set(row, outcome);
  };
  const messages = rows.map(({ message }) => message);
  try {
    await withTimeout(runtime, publishTimeoutMs, late, (signal) => sender.send(messages, settled, signal));
    // A sender that forgets a message must not make the relay send it for ever.
    for (const row of rows) if (!outcomes.has(row)) outcomes.set(row, unreported(sender));
    return undefined;
  } catch (cause) {
    return PostboxError.from(cause, "transport-down");
  } finally {
    open = false;
  }
}

/** The first message of every key, then the second of each, and so on; messages without a key all go first. */
function wavesByKey(rows: readonly Row[]): readonly (readonly Row[])[] {
  const waves: Row[][] = [];
  const seen = new Map<string, number>();
  for (const row of rows) {
    const key = row.message.key;
    const wave = key === undefined ? 0 : (seen.get(key) ?? 0);
    if (key !== undefined) seen.set(key, wave + 1);
    waves[wave] ??= [];
    waves[wave].push(row);
  }
  return waves;
}

function unreported(sender: Sender): Outcome {
  const text = `${sender.name} reported no outcome of this message; it is tried again`;
  return { status: "failed", error: new PostboxError("publish-failed", text) };
}
