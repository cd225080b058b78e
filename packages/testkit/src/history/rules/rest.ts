import type { BoxPromise, RestedBox } from "../history.js";
import type { BoxTrace, MessageTrace, TracedHistory } from "../trace-history.js";
import type { Violation } from "../violation.js";

type Part = keyof RestedBox;

const parts: readonly Part[] = ["pending", "wait", "parked", "done"];

/** `lost`, `misplaced` and `undrained`: whether every message is where it belongs at the end. */
export function* rest({ boxes }: TracedHistory): Iterable<Violation> {
  for (const { box, promise, messages, released, rested } of boxes) {
    if (promise === undefined || rested === undefined) continue;
    const { at, contents } = rested;
    const places = placesIn(contents);
    for (const trace of messages.values()) {
      if (trace.committed.length === 0) continue;
      const found = places.get(trace.id) ?? [];
      if (isLost(trace, found)) yield { rule: "lost", text: lostText(trace, box, found), ids: [trace.id], at };
      const text = misplacement(trace, found, promise);
      if (text !== undefined) yield { rule: "misplaced", text, ids: [trace.id], at };
    }
    const held = promise.holdParked === true ? heldKeys(messages, released) : new Set();
    for (const part of ["pending", "wait"] as const) {
      const ids = contents[part].filter((id) => !held.has(keyOf(messages.get(id))));
      if (ids.length > 0) yield { rule: "undrained", text: undrainedText(box, part, ids), ids, at };
    }
  }
}

function placesIn(contents: RestedBox): Map<string, Part[]> {
  const places = new Map<string, Part[]>();
  for (const part of parts) {
    for (const id of contents[part]) {
      const found = places.get(id);
      if (found === undefined) places.set(id, [part]);
      else found.push(part);
    }
  }
  return places;
}

/** A message in `done` may still be lost: it is marked as sent although it was not. */
function isLost({ accepted, discarded }: MessageTrace, found: readonly Part[]): boolean {
  return accepted.length === 0 && discarded.length === 0 && !found.some((part) => part !== "done");
}

/** A replay adds a row to the one in `done`, and a discard removes one; all other changes move it. */
function misplacement(trace: MessageTrace, found: readonly Part[], { box, keep = false }: BoxPromise) {
  const rows = Math.max(0, 1 + trace.replayed.length - trace.discarded.length);
  if (!keep && found.includes("done")) return `${trace.id} is in done of ${box}, which keeps nothing.`;
  if (found.length > rows) return `${trace.id} is in ${found.join(" and in ")} of ${box}, instead of ${rows} times.`;
  if (!keep || rows === 0 || found.length > 0 || trace.accepted.length === 0) return undefined;
  return `${trace.id}, accepted at event ${trace.accepted[0]?.at}, is not in done of ${box}, nor anywhere else there.`;
}

function heldKeys(messages: BoxTrace["messages"], released: BoxTrace["released"]): Set<string | undefined> {
  const keys = new Set<string | undefined>();
  for (const trace of messages.values()) {
    const { parked, retried, discarded } = trace;
    const letGoAt = released.get(keyOf(trace) ?? "")?.at(-1) ?? -1;
    const freedAt = Math.max(retried.at(-1) ?? -1, discarded.at(-1) ?? -1, letGoAt);
    if ((parked.at(-1) ?? -1) > freedAt) keys.add(keyOf(trace));
  }
  keys.delete(undefined);
  return keys;
}

function keyOf(trace: MessageTrace | undefined): string | undefined {
  return trace?.committed[0]?.message.key;
}

function lostText({ id, committed }: MessageTrace, box: string, found: readonly Part[]): string {
  const where = found.length > 0 ? `is in done of ${box}` : `is gone from ${box}`;
  return `${id}, committed at event ${committed[0]?.tx.endedAt}, ${where}, but was never accepted.`;
}

function undrainedText(box: string, part: Part, ids: readonly string[]): string {
  const more = ids.length > 5 ? ` and ${ids.length - 5} more` : "";
  return `In ${part} of ${box} there is still ${ids.slice(0, 5).join(", ")}${more}.`;
}
