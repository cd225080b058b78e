import type { RestedBox, Sighting } from "../history.js";
import { type MessageTrace, originOf, type Seen, type TracedHistory } from "../trace-history.js";
import type { Violation } from "../violation.js";

interface Apparition {
  readonly trace: MessageTrace | undefined;
  readonly at: number;
  readonly how: string;
}

/** `ghost`: something is seen that no committed transaction has appended. Reported once for each id. */
export function* ghosts(traced: TracedHistory): Iterable<Violation> {
  const first = new Map<string, Apparition>();
  const see = (id: string, trace: MessageTrace | undefined, at: number | undefined, how: string) => {
    if (at === undefined || at >= (first.get(id)?.at ?? Number.POSITIVE_INFINITY)) return;
    first.set(id, { trace, at, how });
  };
  for (const { box, messages, rested } of traced.boxes) {
    for (const trace of messages.values()) {
      if (trace.committed.length > 0) continue;
      see(trace.id, trace, trace.accepted[0]?.at, `was accepted from ${box}`);
      see(trace.id, trace, trace.parked[0], `was parked in ${box}`);
    }
    if (rested === undefined) continue;
    for (const part of ["pending", "wait", "parked", "done"] satisfies (keyof RestedBox)[]) {
      for (const id of rested.contents[part]) {
        const trace = messages.get(id);
        if (!isReal(trace)) see(id, trace, rested.at, `is in ${part} of ${box}`);
      }
    }
  }
  for (const consumer of traced.consumers.values()) {
    for (const { id, delivered, effects } of consumer.handled.values()) {
      const trace = originOf(consumer, id);
      if (isReal(trace)) continue;
      see(id, trace, delivered[0]?.at, `was delivered to ${consumer.consumer}`);
      see(id, trace, effects[0], `has an effect of ${consumer.consumer}`);
    }
  }
  for (const [id, { trace, at, how }] of first) {
    yield { rule: "ghost", text: `${id} ${how} at event ${at}, but ${whyUnreal(trace)}.`, ids: [id], at };
  }
}

/** `altered`: a message arrives that differs from the one that was appended. */
export function* alterations(traced: TracedHistory): Iterable<Violation> {
  for (const { box, messages } of traced.boxes) {
    for (const trace of messages.values()) yield* altered(trace, trace.accepted, `as ${box} has sent it`);
  }
  for (const consumer of traced.consumers.values()) {
    for (const { id, delivered } of consumer.handled.values()) {
      const trace = originOf(consumer, id);
      if (trace !== undefined) yield* altered(trace, delivered, `as ${consumer.consumer} has got it`);
    }
  }
}

/** `unstable-id`: two messages of a box have the same id. */
export function* sharedIds({ boxes }: TracedHistory): Iterable<Violation> {
  for (const { box, messages } of boxes) {
    for (const { id, committed } of messages.values()) {
      const [one, other] = committed;
      if (one === undefined || other === undefined) continue;
      const text = `${id} was appended to ${box} at events ${one.at} and ${other.at}, and both were committed.`;
      yield { rule: "unstable-id", text, ids: [id], at: other.tx.endedAt };
    }
  }
}

function isReal(trace: MessageTrace | undefined): boolean {
  return trace !== undefined && trace.committed.length > 0;
}

function whyUnreal(trace: MessageTrace | undefined): string {
  const append = trace?.appends.at(-1);
  if (append === undefined) return "it was never appended";
  const { name, end, endedAt } = append.tx;
  return end === "none" ? `its transaction ${name} never ended` : `its transaction ${name} rolled back at ${endedAt}`;
}

function* altered({ id, committed }: MessageTrace, sights: readonly Seen[], where: string): Iterable<Violation> {
  const [append] = committed;
  if (append === undefined) return;
  for (const { at, message } of sights) {
    if (committed.some((one) => isSame(one.message, message))) continue;
    const differs = message.key === append.message.key ? "content" : `key (${message.key}, not ${append.message.key})`;
    const text = `${id}, ${where} at event ${at}, has another ${differs} than when it was appended at ${append.at}.`;
    yield { rule: "altered", text, ids: [id], at };
  }
}

function isSame(one: Sighting, other: Sighting): boolean {
  return one.digest === other.digest && one.key === other.key;
}
