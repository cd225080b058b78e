import { PostboxError } from "../../errors.js";
import { withTimeout } from "../../internal/with-timeout.js";
import type { Row } from "../../store.js";
import type { DrainContext } from "../context.js";
import type { Ownership } from "../owning/ownership.js";
import type { Target } from "../target.js";

export interface CountOptions
  extends Pick<DrainContext, "box" | "boxName" | "publishTimeoutMs" | "runtime" | "telemetry"> {
  readonly target: Target;
  readonly ownership: Ownership;
}

/** Rows whose crash counts are stored. A row that was in flight during another crash since then is a new object. */
const counted = new WeakSet<Row>();

/**
 * Stores the crash counts of suspects before they are sent again, since the process may crash before it could store
 * them afterwards. If the broker is unreachable, it rejects instead, so that a process that restarts through an outage
 * counts nothing.
 */
export async function countCrashes(rows: readonly Row[], options: CountOptions): Promise<void> {
  const { box, boxName, target, publishTimeoutMs, ownership, runtime, telemetry } = options;
  const suspects = rows.filter((row) => row.crashes > 0 && !counted.has(row));
  if (suspects.length === 0) return;
  const late = () =>
    new PostboxError(
      "transport-down",
      `${target.name} did not connect within ${publishTimeoutMs} ms; it is tried again`,
    );
  await withTimeout(runtime, publishTimeoutMs, late, async (signal) => target.connect?.(signal));
  const lanes = ownership.of(suspects);
  const standing = await box.suspect(lanes, suspects);
  ownership.lose(lanes.filter(({ lane }) => !standing.has(lane)));
  for (const row of suspects) {
    counted.add(row);
    const { message, crashes } = row;
    telemetry({ name: "message.suspected", box: boxName, id: message.id, crashes });
  }
}
