import type { TracedHistory } from "../trace-history.js";
import type { Violation } from "../violation.js";

/** `twice`: a consumer has more than one effect of a message. */
export function* repeatedEffects({ consumers }: TracedHistory): Iterable<Violation> {
  for (const { consumer, handled } of consumers.values()) {
    for (const { id, effects } of handled.values()) {
      const [first, second] = effects;
      if (second === undefined) continue;
      const text = `${consumer} has ${effects.length} effects of ${id}: of events ${first} and ${second}.`;
      yield { rule: "twice", text, ids: [id], at: second };
    }
  }
}

/** `unhandled`: a message was sent, but a consumer has neither an effect of it nor refused it. */
export function* missingEffects({ boxes, consumers }: TracedHistory): Iterable<Violation> {
  for (const { promise, messages, rested } of boxes) {
    if (promise === undefined || rested === undefined) continue;
    for (const { consumer, wants } of promise.consumers) {
      const handled = consumers.get(consumer)?.handled;
      for (const { id, committed, accepted } of messages.values()) {
        const [first] = accepted;
        if (first === undefined || committed.length === 0 || wants?.(first.message) === false) continue;
        const handling = handled?.get(id);
        if (handling !== undefined && handling.effects.length + handling.refused.length > 0) continue;
        const text = `${id}, accepted at event ${first.at}, has no effect of ${consumer}, which has not refused it.`;
        yield { rule: "unhandled", text, ids: [id], at: rested.at };
      }
    }
  }
}
