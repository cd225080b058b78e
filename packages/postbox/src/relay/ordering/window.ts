import { insertAscending } from "../../internal/ascending.js";
import type { Order, Row, Settlement } from "../../store.js";
import { aloneFrom } from "../isolation/suspicion.js";
import { createReads } from "../reading/reads.js";

/** The rows of one key that this relay knows of. A message without a key has none: it waits for nobody. */
interface KeyState {
  readonly lane: number;
  queue: Row[];
  inFlight: number;
  /** The positions of those in flight that are from `pending`, ascending. */
  readonly sent: number[];
  queued: boolean;
  /** The positions of rows on their way to `wait`, whose settle has not committed yet. */
  unsettledWaits: Set<number>;
  /** The number of the last read that had begun when such a settle committed: what those saw of this key is too old. */
  staleUpTo: number;
  /** The lowest position that those may not have seen in `wait`. */
  staleFrom: number;
  /** One of the batch on its way was parked: what its sender held back behind it has not failed by itself. */
  parkedAhead: boolean;
  /** One of the batch on its way has failed: those behind it in the batch go to `wait` too, whatever is said of them. */
  failedAhead: boolean;
  /** Rows of it on their way to `parked`: until that is stored, a later one sent now could be overtaken by them. */
  unsettledParks: number;
}

/** Most keys never have one on its way to `wait`: they share this. */
const nothing: Set<number> = new Set();

function goesToWait(state: KeyState, { position }: Row): void {
  if (state.unsettledWaits === nothing) state.unsettledWaits = new Set();
  state.unsettledWaits.add(position);
}

/** Rough, but proportional: 512 for the attributes and the objects around them. */
const bytesOf = (row: Row): number => row.message.data.byteLength + 512;

/** What a read brought that was not known yet. */
export interface Arrival {
  readonly fresh: number;
  readonly held: readonly Row[];
}

/**
 * What a relay holds between reading and settling: which rows wait for their key, which may be sent, which are on their
 * way. Knows nothing of time, senders or stores.
 *
 * A key is checked here and not where it was read: a row may have been read before the failure of an earlier one of its
 * key was stored. Reads are numbered for that, in the order in which they began.
 */
export interface Window {
  /** Begins a read: its number. */
  beginRead(): number;
  /**
   * Takes in what a read brought, and ends it. Answers with the rows that were not known, and those of them whose key is
   * held: they go to `wait`.
   */
  endRead(read: number, rows: readonly Row[]): Arrival;
  /**
   * The next rows to send, in order per key, and puts them on their way. One that is to be sent alone comes alone, when all before it
   * is `settled`, and nothing with it until its outcome is stored. Unless it is `well`, and others can be sent, any that was ever at a death waits.
   */
  take(maxRows: number, maxBytes: number, well?: boolean, settled?: boolean): Row[];
  /** It was sent: the next one of its key may go. */
  sent(row: Row): void;
  /** It failed: answers with those behind it, which go to `wait` with it; in a total order none do, since it stays in its place. */
  failed(row: Row): readonly Row[];
  /** It goes to `parked`, or is dropped: its key goes on when that is stored. `alone`: no sender held anything back for it. */
  parked(row: Row, alone?: boolean): void;
  /** Whether an earlier one of its key has failed (held) or been parked in the batch that this row was sent in. */
  ahead(row: Row): "held" | "parked" | undefined;
  /**
   * Nobody knows whether they were sent: back to the front, in their order, with one crash more each if they may be the
   * cause. Answers with those behind one that failed in the same batch: they go to `wait`.
   */
  undecided(rows: readonly Row[], crashed?: boolean): readonly Row[];
  /** Its settle has committed. */
  settled(row: Row, to: Settlement["to"]): void;
  /** Whether an earlier one of its key is on its way that is stored as pending, and not in `wait`. */
  hasEarlierOnItsWay(row: Row): boolean;
  /** Whether it is on its way. Not any more when its lane was dropped: whatever becomes of it is another's business. */
  isOnItsWay(row: Row): boolean;
  /** Whether nothing of a lane is on its way or unsettled, and nothing is buffered. */
  isIdle(lane: number): boolean;
  /** Forgets what of a lane is not on its way yet: it is still stored, for whoever reads the lane next. In a total order, of all lanes. */
  forget(lane: number): void;
  /** Forgets everything of a lane that is lost; in a total order all of them are. */
  drop(lane: number): void;
  /** The positions of a lane beyond `after` and up to `upTo` that are known here, or were settled while a read was under way. */
  known(lane: number, after: number, upTo: number): number[];
  /**
   * It was sent after all, though its outcome had been unknown: takes it out if it is buffered, so that it is not sent again. False if
   * it is not.
   */
  sentAfterAll(row: Row): boolean;
  /** What the rows are held under that were read from `wait` and are not settled yet. */
  waitingUnder(): string[];
  /** In a total order: whether a row has failed, and that is not stored yet. Until then nothing is taken in. */
  readonly isHeldUp: boolean;
  /** Rows that are not in flight yet. */
  readonly buffered: number;
  /** How many of them could be sent now, about: the others wait for an earlier one of their key. */
  readonly sendable: number;
  /** How many of them are of a lane. */
  bufferedIn(lane: number): number;
  readonly bufferedBytes: number;
  readonly inFlight: number;
  readonly inFlightBytes: number;
}

export interface WindowOptions {
  /** Whether the sender keeps the order of a key within a batch: then several of one may be on their way. */
  readonly keepsOrder: boolean;
  /** What one key is: with `total` all rows are of one, and with `none` each goes for itself. Defaults to `key`. */
  readonly order?: Order;
  /** What is thought of a row that has not been known so far. Defaults to what was stored. */
  seen?(row: Row): Row;
}

/** The one key of a total order. */
const everything = "";

const itself = (position: number): number => position;
const positionOf = ({ position }: Row): number => position;

interface Flight {
  row: Row | undefined;
  /** As they were when it departed: a sender may have given their memory away. */
  readonly bytes: number;
}

export function createWindow({ keepsOrder, order = "key", seen = (row) => row }: WindowOptions): Window {
  /** With one key for everything, what fails stays in its place: those behind it are read again, after it. */
  const inPlace = order === "total";
  const keys = new Map<string, KeyState>();
  let ready: (Row | KeyState)[] = [];
  let readyHead = 0;
  /** Taken from `ready`: what is to be sent next of these goes alone. */
  let suspects: (Row | KeyState)[] = [];
  /** Sent alone, and its outcome is not stored yet: at a death meanwhile, it alone would be suspected. */
  let isolated: Row | undefined;
  const live = new Map<number, Set<number>>();
  const reads = createReads();
  let buffered = 0;
  let bufferedBytes = 0;
  /** By position. What has landed lets its row go: a Map that grows over what was deleted keeps the old values alive for long. */
  const flying = new Map<number, Flight>();
  const bufferedIn = new Map<number, number>();
  let inFlight = 0;
  let inFlightBytes = 0;

  const hold = (row: Row): void => {
    buffered++;
    bufferedBytes += bytesOf(row);
    bufferedIn.set(row.lane, (bufferedIn.get(row.lane) ?? 0) + 1);
  };
  const letGo = (row: Row): void => {
    buffered--;
    bufferedBytes -= bytesOf(row);
    bufferedIn.set(row.lane, (bufferedIn.get(row.lane) ?? 0) - 1);
  };
  const keyOf = (row: Row): string | undefined =>
    order === "key" ? row.message.key : inPlace ? everything : undefined;
  const liveIn = (lane: number): Set<number> => {
    const found = live.get(lane) ?? new Set();
    live.set(lane, found);
    return found;
  };
  const stateOf = (key: string, lane: number): KeyState => {
    let state = keys.get(key);
    if (state === undefined) {
      state = {
        lane,
        queue: [],
        inFlight: 0,
        sent: [],
        queued: false,
        unsettledWaits: nothing,
        staleUpTo: 0,
        staleFrom: 0,
        parkedAhead: false,
        failedAhead: false,
        unsettledParks: 0,
      };
      keys.set(key, state);
    }
    return state;
  };
  const enqueue = (state: KeyState): void => {
    if (state.queued || state.inFlight > 0 || state.unsettledParks > 0 || state.queue.length === 0) return;
    state.queued = true;
    ready.push(state);
  };
  const tidy = (key: string, state: KeyState): void => {
    const idle =
      state.queue.length === 0 && state.inFlight === 0 && state.unsettledWaits.size === 0 && state.unsettledParks === 0;
    // A read may still bring what it saw before the last settle to `wait` of this key had committed.
    if (idle && !reads.isUnderWayUpTo(state.staleUpTo)) keys.delete(key);
  };
  /** Whether one of its key with a lower position is not back in `wait` yet, or not for all that this read could see. */
  const isOvertaking = (row: Row, read: number, state: KeyState | undefined): boolean => {
    if (state === undefined) return false;
    for (const position of state.unsettledWaits) if (position < row.position) return true;
    return read <= state.staleUpTo && state.staleFrom < row.position;
  };
  /** Not on its way and not to be: as if it had not been read. */
  const discard = (row: Row): void => {
    live.get(row.lane)?.delete(row.position);
    letGo(row);
  };
  const landed = (row: Row): KeyState | undefined => {
    const flight = flying.get(row.position);
    if (flight?.row === row) {
      inFlightBytes -= flight.bytes;
      flight.row = undefined;
      flying.delete(row.position);
    }
    inFlight--;
    const key = keyOf(row);
    if (key === undefined) return undefined;
    const state = stateOf(key, row.lane);
    state.inFlight--;
    // Mostly the first: outcomes come about in order.
    const place = row.waiting ? -1 : state.sent.indexOf(row.position);
    if (place >= 0) state.sent.splice(place, 1);
    if (state.inFlight === 0) state.parkedAhead = state.failedAhead = false;
    return state;
  };

  const depart = (batch: readonly Row[]): void => {
    for (const row of batch) {
      const bytes = bytesOf(row);
      flying.set(row.position, { row, bytes });
      inFlightBytes += bytes;
      letGo(row);
      const key = keyOf(row);
      const state = key === undefined ? undefined : keys.get(key);
      if (state !== undefined && !row.waiting) insertAscending(state.sent, row.position, itself);
    }
    inFlight += batch.length;
  };
  const rowsInFlight = (): Row[] => [...flying.values()].map(({ row }) => row as Row);
  const isSuspect = (entry: Row | KeyState, from: number): boolean => {
    const row = "queue" in entry ? entry.queue[0] : entry;
    return row !== undefined && row.crashes >= from;
  };
  const isolate = (): Row[] => {
    const entry = suspects.shift() as Row | KeyState;
    let row = entry as Row;
    if ("queue" in entry) {
      entry.queued = false;
      entry.inFlight++;
      row = entry.queue.shift() as Row;
    }
    isolated = row;
    depart([row]);
    return [row];
  };

  return {
    beginRead: () => reads.begin(),

    endRead(read, rows) {
      const held: Row[] = [];
      let fresh = 0;
      for (const found of rows) {
        if (live.get(found.lane)?.has(found.position) || reads.isPast(found, read)) continue;
        const key = keyOf(found);
        const state = key === undefined ? undefined : keys.get(key);
        const tooOld = state !== undefined && (state.unsettledWaits.size > 0 || read <= state.staleUpTo);
        // It will be read again.
        if (inPlace ? tooOld : found.waiting && isOvertaking(found, read, state)) continue;
        const row = seen(found);
        liveIn(row.lane).add(row.position);
        fresh++;
        if (key === undefined) {
          ready.push(row);
          hold(row);
        } else if (!inPlace && !row.waiting && (row.held || tooOld)) {
          goesToWait(stateOf(key, row.lane), row);
          held.push(row);
        } else {
          const own = state ?? stateOf(key, row.lane);
          // Mostly the last: what an operator has put back, or what has committed late, has an earlier place.
          insertAscending(own.queue, row, positionOf);
          hold(row);
          enqueue(own);
        }
      }
      reads.end(read);
      if (!reads.underWay) for (const [key, state] of keys) if (state.staleUpTo > 0) tidy(key, state);
      return { fresh, held };
    },

    take(maxRows, maxBytes, well = true, settled = true) {
      const from = well ? aloneFrom : 1;
      if (isolated !== undefined) return [];
      if (well && suspects.length > 0) {
        // Those that were only asked to wait go as before.
        for (const entry of suspects) if (!isSuspect(entry, from)) ready.push(entry);
        suspects = suspects.filter((entry) => isSuspect(entry, from));
      }
      if (suspects.length > 0 && well) return inFlight > 0 || !settled ? [] : isolate();
      const batch: Row[] = [];
      let bytes = 0;
      const put = (row: Row) => {
        batch.push(row);
        bytes += bytesOf(row);
      };
      const room = () => batch.length < maxRows && (batch.length === 0 || bytes < maxBytes);
      while (room() && readyHead < ready.length) {
        const next = ready[readyHead++] as Row | KeyState;
        if (isSuspect(next, from)) {
          suspects.push(next);
          continue;
        }
        if (!("queue" in next)) {
          put(next);
          continue;
        }
        next.queued = false;
        // All of it was confirmed meanwhile.
        if (next.queue.length === 0) continue;
        const most = keepsOrder ? next.queue.length : 1;
        let taken = 0;
        while (taken < most && room() && !isSuspect(next.queue[taken] as Row, from)) put(next.queue[taken++] as Row);
        if (taken === next.queue.length) next.queue = [];
        else next.queue.splice(0, taken);
        next.inFlight += taken;
      }
      // Taking from the front each time would move all the others each time.
      if (readyHead > 1024 || readyHead === ready.length) {
        ready.splice(0, readyHead);
        readyHead = 0;
      }
      if (batch.length === 0 && inFlight === 0 && settled && suspects.length > 0) return isolate();
      depart(batch);
      return batch;
    },

    sent(row) {
      const state = landed(row);
      if (state === undefined) return;
      enqueue(state);
      tidy(keyOf(row) as string, state);
    },

    failed(row) {
      const state = landed(row);
      if (state === undefined) return [];
      goesToWait(state, row);
      if (state.inFlight > 0) state.failedAhead = true;
      const behind = state.queue.splice(0);
      for (const other of behind) letGo(other);
      // Those that stay where they are are read again: what waits already when its hold is due.
      const moves = (other: Row) => !inPlace && !other.waiting;
      for (const other of behind) if (!moves(other)) live.get(other.lane)?.delete(other.position);
      const moving = behind.filter(moves);
      for (const other of moving) goesToWait(state, other);
      return moving;
    },

    parked(row, alone = false) {
      const state = landed(row);
      if (state === undefined) return;
      if (state.inFlight > 0 && !alone) state.parkedAhead = true;
      state.unsettledParks++;
    },

    ahead(row) {
      const key = keyOf(row);
      const state = key === undefined ? undefined : keys.get(key);
      if (state === undefined) return undefined;
      return state.failedAhead ? "held" : state.parkedAhead ? "parked" : undefined;
    },

    undecided(rows, crashed = false) {
      const behind: Row[] = [];
      if (rows.includes(isolated as Row)) isolated = undefined;
      for (const row of [...rows].reverse()) {
        const key = keyOf(row);
        const held = key !== undefined && keys.get(key)?.failedAhead === true;
        const state = landed(row);
        if (held && state !== undefined) {
          // Those behind it that wait and were read meanwhile would overtake it: they are read again, after it.
          const overtaking = state.queue.filter((other) => other.waiting && other.position > row.position);
          for (const other of overtaking) discard(other);
          state.queue = state.queue.filter((other) => !overtaking.includes(other));
          if (row.waiting) live.get(row.lane)?.delete(row.position);
          else {
            goesToWait(state, row);
            behind.unshift(row);
          }
          continue;
        }
        hold(row);
        const again = crashed ? { ...row, crashes: row.crashes + 1 } : row;
        if (state === undefined) ready.push(again);
        else state.queue.unshift(again);
      }
      for (const row of rows) {
        const key = keyOf(row);
        if (key !== undefined) enqueue(stateOf(key, row.lane));
      }
      return behind;
    },

    settled(row, to) {
      if (row === isolated) isolated = undefined;
      const known = live.get(row.lane)?.delete(row.position) ?? false;
      reads.settled(row);
      const key = keyOf(row);
      const state = key === undefined ? undefined : keys.get(key);
      // Its lane may have been dropped, and even be ours again, since its settle was sent: then nobody counts on this.
      if (!known || key === undefined || state === undefined) return;
      if ((to === "wait" || to === "pending") && state.unsettledWaits.delete(row.position)) {
        state.staleFrom = reads.isUnderWayUpTo(state.staleUpTo)
          ? Math.min(state.staleFrom, row.position)
          : row.position;
        state.staleUpTo = reads.last;
      } else if ((to === "parked" || to === "dropped") && state.unsettledParks > 0) {
        state.unsettledParks--;
        enqueue(state);
      }
      tidy(key, state);
    },

    hasEarlierOnItsWay(row) {
      const key = keyOf(row);
      const first = key === undefined ? undefined : keys.get(key)?.sent[0];
      return first !== undefined && first < row.position;
    },
    isOnItsWay: (row) => flying.get(row.position)?.row === row,
    isIdle: (lane) => (live.get(lane)?.size ?? 0) === 0,

    forget(lane) {
      const stays = (entry: Row | KeyState) => {
        if (!inPlace && entry.lane !== lane) return true;
        if (!("queue" in entry)) discard(entry);
        return false;
      };
      ready = ready.slice(readyHead).filter(stays);
      readyHead = 0;
      suspects = suspects.filter(stays);
      for (const state of keys.values()) {
        if (!inPlace && state.lane !== lane) continue;
        state.queued = false;
        for (const row of state.queue.splice(0)) discard(row);
      }
    },

    drop(lane) {
      if (inPlace || isolated?.lane === lane) isolated = undefined;
      this.forget(lane);
      for (const row of rowsInFlight()) if (inPlace || row.lane === lane) landed(row);
      for (const [key, state] of keys) if (inPlace || state.lane === lane) keys.delete(key);
      if (inPlace) live.clear();
      else live.delete(lane);
    },

    known: (lane, after, upTo) =>
      [...(live.get(lane) ?? []), ...reads.past(lane)].filter((position) => position > after && position <= upTo),

    sentAfterAll(row) {
      const key = keyOf(row);
      const state = key === undefined ? undefined : keys.get(key);
      const place = (state?.queue ?? ready).indexOf(row as never, state === undefined ? readyHead : 0);
      if (place < 0) return false;
      (state?.queue ?? ready).splice(place, 1);
      letGo(row);
      if (state !== undefined) {
        if (state.queue.length === 0 && suspects.includes(state)) {
          suspects = suspects.filter((entry) => entry !== state);
          state.queued = false;
        }
        tidy(key as string, state);
      }
      return true;
    },

    waitingUnder() {
      const found = new Set<string>();
      const add = (row: Row) => row.waiting && found.add(keyOf(row) ?? `\u0001${row.message.id}`);
      for (const row of rowsInFlight()) add(row);
      for (const entry of [...ready.slice(readyHead), ...suspects]) if (!("queue" in entry)) add(entry);
      for (const { queue } of keys.values()) for (const row of queue) add(row);
      return [...found];
    },

    get isHeldUp() {
      return inPlace && (keys.get(everything)?.unsettledWaits.size ?? 0) > 0;
    },
    get buffered() {
      return buffered;
    },
    get sendable() {
      return ready.length - readyHead + suspects.length;
    },
    bufferedIn: (lane) => bufferedIn.get(lane) ?? 0,
    get bufferedBytes() {
      return bufferedBytes;
    },
    get inFlight() {
      return inFlight;
    },
    get inFlightBytes() {
      return inFlightBytes;
    },
  };
}
