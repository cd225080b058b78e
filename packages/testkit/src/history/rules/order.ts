import type { BoxPromise, Sighting } from "../history.js";
import type { BoxTrace, ConsumerTrace, MessageTrace, TracedHistory } from "../trace-history.js";
import type { Rule, Violation } from "../violation.js";

/** A message in order. */
interface Place {
  readonly id: string;
  readonly key: string | undefined;
  readonly appendedAt: number;
  readonly committedAt: number;
  /** When it was sent, and when later ones could be; infinite for never. */
  readonly wentAt: number;
  readonly freedAt: number;
}

/** `order`: a message was accepted before an earlier one was accepted or set aside. */
export function* acceptanceOrder({ boxes }: TracedHistory): Iterable<Violation> {
  for (const { promise, messages, released } of boxes) {
    if (promise === undefined || promise.order === "none") continue;
    const line = placesOf(messages, ({ accepted, parked, discarded, committed }) => {
      const wentAt = accepted[0]?.at ?? never;
      const parkedAt = firstOf(parked);
      const releases = released.get(committed[0]?.message.key ?? "") ?? [];
      const letGoAt = promise.holdParked ? (releases.find((at) => at > parkedAt) ?? never) : parkedAt;
      return { wentAt, freedAt: Math.min(wentAt, firstOf(discarded), letGoAt) };
    });
    yield* overtakings("order", promise, line, "was accepted");
  }
}

/** `effect-order`: the same for a consumer's effects. */
export function* effectOrder({ boxes, consumers }: TracedHistory): Iterable<Violation> {
  for (const { promise, messages } of boxes) {
    if (promise === undefined || promise.order === "none") continue;
    for (const { consumer, effectsInOrder, wants } of promise.consumers) {
      if (!effectsInOrder) continue;
      const line = placesOf(messages, (trace) => handledAt(trace, consumers.get(consumer)), wants);
      yield* overtakings("effect-order", promise, line, `had its effect of ${consumer}`);
    }
  }
}

const never = Number.POSITIVE_INFINITY;

type Going = Pick<Place, "wentAt" | "freedAt">;

function handledAt({ id, parked, discarded }: MessageTrace, consumer: ConsumerTrace | undefined): Going {
  const { effects = [], refused = [] } = consumer?.handled.get(id) ?? {};
  const wentAt = firstOf(effects);
  return { wentAt, freedAt: Math.min(wentAt, firstOf(parked), firstOf(discarded), firstOf(refused)) };
}

function firstOf(events: readonly number[]): number {
  return events[0] ?? never;
}

function placesOf(
  messages: BoxTrace["messages"],
  goingOf: (trace: MessageTrace) => Going,
  wants: (message: Sighting) => boolean = () => true,
): Place[] {
  const line: Place[] = [];
  for (const trace of messages.values()) {
    const [append] = trace.committed;
    if (append === undefined || !wants(append.message)) continue;
    const { at: appendedAt, message, tx } = append;
    line.push({ id: trace.id, key: message.key, appendedAt, committedAt: tx.endedAt, ...goingOf(trace) });
  }
  return line;
}

function* overtakings(rule: Rule, promise: BoxPromise, line: Place[], how: string): Iterable<Violation> {
  const { order, strictKeyOrder = false } = promise;
  const told = new Set<Place>();
  const tell = function* (queue: Place[], since: (place: Place) => number) {
    for (const [earlier, later] of overtaken(queue, since)) {
      if (told.has(later)) continue;
      told.add(later);
      const among = order === "key" ? ` of key ${later.key}` : "";
      const text =
        `${later.id}${among} ${how} at event ${later.wentAt}, ` +
        `before ${earlier.id} of event ${earlier.appendedAt}.`;
      yield { rule, text, ids: [earlier.id, later.id], at: later.wentAt };
    }
  };
  if (order === "total") yield* tell(line, ({ appendedAt }) => appendedAt);
  // Only appends to the same key wait for each other: even under a total order, the order of commits holds within a key
  // only.
  if (order === "total" && !strictKeyOrder) return;
  for (const queue of byKey(line)) {
    yield* tell(queue, strictKeyOrder ? ({ committedAt }) => committedAt : ({ appendedAt }) => appendedAt);
  }
}

function byKey(line: readonly Place[]): Iterable<Place[]> {
  const queues = new Map<string, Place[]>();
  for (const place of line) {
    if (place.key === undefined) continue;
    const queue = queues.get(place.key);
    if (queue === undefined) queues.set(place.key, [place]);
    else queue.push(place);
  }
  return queues.values();
}

/**
 * The messages that went while an earlier one still blocked them, each with the one that blocked longest. Earlier are
 * the messages committed before its `since`, and those appended before it in its own transaction.
 */
function* overtaken(
  queue: readonly Place[],
  since: (place: Place) => number,
): Iterable<[earlier: Place, later: Place]> {
  const byCommit = queue.toSorted((a, b) => a.committedAt - b.committedAt);
  const lastOfTx = new Map<number, Place>();
  let next = 0;
  let last: Place | undefined;
  for (const place of queue.toSorted((a, b) => since(a) - since(b) || a.appendedAt - b.appendedAt)) {
    for (; (byCommit[next]?.committedAt ?? never) < since(place); next++) last = laterFreed(last, byCommit[next]);
    const ofTx = lastOfTx.get(place.committedAt);
    const earlier = laterFreed(last, ofTx);
    if (earlier !== undefined && earlier.freedAt > place.wentAt) yield [earlier, place];
    lastOfTx.set(place.committedAt, laterFreed(ofTx, place) ?? place);
  }
}

function laterFreed(one: Place | undefined, other: Place | undefined): Place | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  return other.freedAt > one.freedAt ? other : one;
}
