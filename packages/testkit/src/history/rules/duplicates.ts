import { originOf, type TracedHistory } from "../trace-history.js";
import type { Violation } from "../violation.js";

/** `duplicate`: a message was sent or delivered again, without a fault or a request. */
export function* duplicates(traced: TracedHistory): Iterable<Violation> {
  for (const { box, messages } of traced.boxes) {
    for (const { id, accepted, retried, replayed } of messages.values()) {
      const since = accepted[0]?.at ?? 0;
      for (const [earlier, { at }] of accepted.entries()) {
        if (at > traced.faultAt) break;
        if (earlier <= countBetween(retried, since, at) + countBetween(replayed, since, at)) continue;
        yield { rule: "duplicate", text: again(id, "accepted", `from ${box}`, at), ids: [id], at };
      }
    }
  }
  for (const consumer of traced.consumers.values()) {
    for (const { id, delivered } of consumer.handled.values()) {
      if (delivered.length < 2) continue;
      const accepted = originOf(consumer, id)?.accepted.map(({ at }) => at) ?? [];
      for (const [earlier, { at }] of delivered.entries()) {
        if (at > traced.faultAt) break;
        // A message that was sent twice may be delivered twice; only the first wrong step is reported.
        if (earlier === 0 || earlier < countBetween(accepted, -1, at)) continue;
        yield { rule: "duplicate", text: again(id, "delivered", `to ${consumer.consumer}`, at), ids: [id], at };
      }
    }
  }
}

function countBetween(events: readonly number[], after: number, before: number): number {
  let count = 0;
  for (const at of events) if (at > after && at < before) count++;
  return count;
}

function again(id: string, how: string, where: string, at: number): string {
  return `${id} was ${how} again ${where} at event ${at}, before any fault and without an operator.`;
}
