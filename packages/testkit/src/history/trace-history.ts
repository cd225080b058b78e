import type { BoxPromise, HistoryEvent, Promises, RestedBox, Sighting } from "./history.js";

/** A message, and the event where it was seen. */
export interface Seen {
  readonly at: number;
  readonly message: Sighting;
}

interface Transaction {
  readonly name: string;
  readonly beganAt: number;
  readonly appends: Append[];
  readonly effects: Handling[];
  end: "none" | "committed" | "rolled-back";
  /** Infinite while it is open. */
  endedAt: number;
}

interface Append extends Seen {
  readonly tx: Transaction;
  readonly trace: MessageTrace;
}

/** What happened to an id in one box. Lists of numbers are indexes of events, ascending. */
export interface MessageTrace {
  readonly id: string;
  readonly appends: Append[];
  /** The committed `appends`, in the order of their commits. Empty for a message that should not exist. */
  readonly committed: Append[];
  readonly accepted: Seen[];
  readonly parked: number[];
  readonly retried: number[];
  readonly discarded: number[];
  readonly replayed: number[];
}

export interface BoxTrace {
  readonly box: string;
  readonly promise: BoxPromise | undefined;
  readonly messages: Map<string, MessageTrace>;
  /** When an operator released a key. */
  readonly released: Map<string, number[]>;
  rested: { readonly at: number; readonly contents: RestedBox } | undefined;
}

/** What one consumer did with one id. */
interface Handling {
  readonly id: string;
  readonly delivered: Seen[];
  /** When the transactions of its effects committed. */
  readonly effects: number[];
  readonly refused: number[];
}

export interface ConsumerTrace {
  readonly consumer: string;
  /** The boxes that its messages come from: those that name it, or all boxes if none does. */
  readonly boxes: readonly BoxTrace[];
  readonly handled: Map<string, Handling>;
}

/** A history, sorted by box and consumer. */
export interface TracedHistory {
  readonly history: readonly HistoryEvent[];
  readonly boxes: readonly BoxTrace[];
  readonly consumers: ReadonlyMap<string, ConsumerTrace>;
  /** Transactions that never ended. */
  readonly open: readonly Transaction[];
  /** The first fault; infinite if there was none. */
  readonly faultAt: number;
}

export function traceHistory(history: readonly HistoryEvent[], promises: Promises): TracedHistory {
  const boxes = new Map<string, BoxTrace>();
  const handledBy = new Map<string, Map<string, Handling>>();
  const open = new Map<string, Transaction>();
  let faultAt = Number.POSITIVE_INFINITY;
  for (const promise of promises.boxes) boxes.set(promise.box, newBox(promise.box, promise));

  const boxOf = (name: string) => getOr(boxes, name, newBox);
  const messageIn = (box: string, id: string) => getOr(boxOf(box).messages, id, newMessage);
  const handlingOf = (consumer: string, id: string) => getOr(getOr(handledBy, consumer, newMap), id, newHandling);

  for (const [at, event] of history.entries()) {
    switch (event.what) {
      case "appended": {
        const tx = getOr(open, event.tx, (name) => newTransaction(name, at));
        const trace = messageIn(event.box, event.message.id);
        const append = { at, message: event.message, tx, trace };
        tx.appends.push(append);
        trace.appends.push(append);
        break;
      }
      case "effect":
        getOr(open, event.tx, (name) => newTransaction(name, at)).effects.push(handlingOf(event.consumer, event.id));
        break;
      case "committed":
      case "rolled-back":
        end(open.get(event.tx), event.what, at);
        open.delete(event.tx);
        break;
      case "accepted":
        messageIn(event.box, event.message.id).accepted.push({ at, message: event.message });
        break;
      case "delivered":
        handlingOf(event.consumer, event.message.id).delivered.push({ at, message: event.message });
        break;
      case "refused":
        // A message that is refused outright never blocks another one.
        handlingOf(event.consumer, event.id).refused.push(event.outright ? 0 : at);
        break;
      case "parked":
      case "retried":
      case "discarded":
      case "replayed":
        messageIn(event.box, event.id)[event.what].push(at);
        break;
      case "released":
        getOr(boxOf(event.box).released, event.key, newList).push(at);
        break;
      case "fault":
        faultAt = Math.min(faultAt, at);
        break;
      case "rested":
        boxOf(event.box).rested = { at, contents: event.contents };
        break;
    }
  }
  return {
    history,
    boxes: [...boxes.values()],
    consumers: consumersOf(handledBy, [...boxes.values()]),
    open: [...open.values()],
    faultAt,
  };
}

/** The trace of a message that a consumer has seen; preferably a committed one. */
export function originOf({ boxes }: ConsumerTrace, id: string): MessageTrace | undefined {
  let origin: MessageTrace | undefined;
  for (const { messages } of boxes) {
    const trace = messages.get(id);
    if (trace !== undefined && trace.committed.length > 0) return trace;
    origin ??= trace;
  }
  return origin;
}

function end(tx: Transaction | undefined, how: "committed" | "rolled-back", at: number): void {
  if (tx === undefined) return;
  tx.end = how;
  tx.endedAt = at;
  if (how === "rolled-back") return;
  for (const append of tx.appends) append.trace.committed.push(append);
  for (const { effects } of tx.effects) effects.push(at);
}

function consumersOf(
  handledBy: ReadonlyMap<string, Map<string, Handling>>,
  boxes: readonly BoxTrace[],
): Map<string, ConsumerTrace> {
  const consumers = new Map<string, ConsumerTrace>();
  for (const [consumer, handled] of handledBy) {
    const own = boxes.filter(({ promise }) => promise?.consumers.some((one) => one.consumer === consumer));
    consumers.set(consumer, { consumer, boxes: own.length > 0 ? own : boxes, handled });
  }
  return consumers;
}

function getOr<K, V>(map: Map<K, V>, key: K, create: (key: K) => V): V {
  let value = map.get(key);
  if (value === undefined) {
    value = create(key);
    map.set(key, value);
  }
  return value;
}

function newMap(): Map<string, Handling> {
  return new Map();
}

function newList(): number[] {
  return [];
}

function newBox(box: string, promise?: BoxPromise): BoxTrace {
  return { box, promise, messages: new Map(), released: new Map(), rested: undefined };
}

function newTransaction(name: string, beganAt: number): Transaction {
  return { name, beganAt, appends: [], effects: [], end: "none", endedAt: Number.POSITIVE_INFINITY };
}

function newMessage(id: string): MessageTrace {
  return { id, appends: [], committed: [], accepted: [], parked: [], retried: [], discarded: [], replayed: [] };
}

function newHandling(id: string): Handling {
  return { id, delivered: [], effects: [], refused: [] };
}
