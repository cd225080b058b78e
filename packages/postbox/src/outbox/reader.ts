import type { Runtime } from "../internal/runtime.js";
import { createWake } from "../internal/wake.js";
import type { Box, Row } from "../store.js";
import type { Telemetry } from "../telemetry/events.js";
import type { Arrival, Window } from "./window.js";

export interface ReaderOptions {
  readonly box: Box;
  readonly boxName: string;
  readonly window: Window;
  readonly batchSize: number;
  readonly pollIntervalMs: number;
  readonly runtime: Runtime;
  readonly telemetry: Telemetry;
  /** How long to wait after a failure. Ends the engine for what no retry can mend. */
  failed(error: unknown): number;
  /** What is read of these rows, before they are taken into the window. */
  seen<R extends Row>(rows: readonly R[]): readonly R[];
  /** Rows were taken into the window; these of them are held. */
  arrived(held: readonly Row[]): void;
}

interface LaneState {
  readonly lane: number;
  /** Everything up to here has been read; what commits below it later is found by looking back. */
  cursor: number;
  limit: number;
  /** The same for what waits. */
  dueLimit: number;
  count: number;
}

/** Brings rows into the window: new ones from the tip of each lane, and those that committed late. */
export interface Reader {
  /** Reads these lanes too, from their beginning. */
  add(lanes: readonly number[]): void;
  /** Reads this one no more. */
  remove(lane: number): void;
  /** Some of the window was sent: there may be room again. */
  roomLeft(): void;
  /** Something was appended, or is about to be: looks at once, and again after 1, 2, 4 … ms, as it may not have committed. */
  hinted(): void;
  /** Something waits that is due in `ms`: looks for it then, if not earlier. */
  dueIn(ms: number): void;
  /** Both loops, until the signal is aborted. */
  run(signal: AbortSignal): Promise<void>;
}

/** The share of time that looking all the way down may take: its interval is so many times its cost. */
const patience = 20;
const shortestIntervalMs = 60_000;

export function createReader(options: ReaderOptions): Reader {
  const { box, boxName, window, runtime, telemetry, pollIntervalMs, batchSize } = options;
  const byLane = new Map<number, LaneState>();
  let lanes: LaneState[] = [];
  const smallest = () => Math.max(1, Math.ceil(batchSize / lanes.length));
  const room = createWake(runtime);
  const pause = createWake(runtime);
  let pauseMs = 0;
  let drained = false;
  const due = createWake(runtime);
  /** When to look for what is due again. */
  let dueAt = 0;
  /** The highest position that was found. */
  let highest = 0;
  /** Each open transaction, and the highest position that was found before it was seen: its own are above. */
  const openSince = new Map<number, number>();

  /** A lane may have been lost, and even gained anew, while it was read. */
  function stillAsked<R extends Row>(asked: readonly LaneState[], rows: readonly R[]): readonly R[] {
    const same = new Set(asked.filter((state) => byLane.get(state.lane) === state).map(({ lane }) => lane));
    return same.size === asked.length ? rows : rows.filter(({ lane }) => same.has(lane));
  }

  /**
   * One look at the tips, each lane from where it was read to. Answers whether some lane may have more.
   *
   * What a transaction brings that was open while its lane was read past its positions is taken in before what this read
   * found: that may be of the same key, and was appended later.
   */
  async function readTips(): Promise<"full" | "some" | "none"> {
    const read = window.beginRead();
    let rows: readonly Row[] = [];
    let arrival: Arrival;
    let late = 0;
    try {
      const asked = lanes;
      const found = await box.read(asked.map(({ lane, cursor, limit }) => ({ lane, after: cursor, limit })));
      if (found.rows.length > 0 && runtime.failpoint) await runtime.failpoint("relay.read");
      late = await readLeft(found.open);
      rows = options.seen(stillAsked(asked, found.rows));
    } finally {
      arrival = window.endRead(read, rows);
    }
    const fresh = late + arrival.fresh;
    const { held } = arrival;
    for (const state of lanes) state.count = 0;
    for (const { lane, position } of rows) {
      const state = byLane.get(lane);
      if (state === undefined) continue;
      state.count++;
      if (position > state.cursor) state.cursor = position;
      if (position > highest) highest = position;
    }
    let full = false;
    for (const state of lanes) {
      const isFull = state.count >= state.limit;
      full ||= isFull;
      state.limit = isFull ? Math.min(state.limit * 2, batchSize) : smallest();
    }
    // Many full lanes share what one alone may have.
    const wanted = lanes.reduce((sum, { limit }) => sum + limit, 0);
    const most = 4 * batchSize;
    if (wanted > most)
      for (const state of lanes) state.limit = Math.max(smallest(), Math.floor((state.limit * most) / wanted));
    if (fresh > 0) telemetry({ name: "relay.read", box: boxName, count: fresh });
    if (fresh > 0) options.arrived(held);
    return full ? "full" : fresh > 0 ? "some" : "none";
  }

  async function tipLoop(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      if (lanes.length === 0 || window.buffered >= 4 * batchSize) {
        await room.wait(signal);
        continue;
      }
      const startedAt = runtime.monotonic();
      try {
        const found = await readTips();
        const empty = found === "none" && window.buffered === 0 && window.inFlight === 0;
        if (empty && !drained) telemetry({ name: "relay.drained", box: boxName });
        drained = empty;
        pauseMs = found === "full" ? 0 : found === "some" ? 1 : Math.min(pollIntervalMs, Math.max(1, pauseMs * 2));
      } catch (error) {
        pauseMs = options.failed(error);
      }
      // From look to look, whatever a look takes; but never without a rest.
      const restMs = Math.max(pauseMs / 2, pauseMs - (runtime.monotonic() - startedAt));
      if (pauseMs > 0) await pause.wait(signal, restMs);
    }
  }

  /** Takes in what waits and is due. It is read again as long as its outcome is not stored: that is no news. */
  async function readDue(): Promise<number> {
    const read = window.beginRead();
    let rows: readonly Row[] = [];
    let arrival: Arrival;
    try {
      const asked = lanes;
      rows = await box.due(asked.map(({ lane, dueLimit }) => ({ lane, limit: dueLimit })));
      const counts = new Map<number, number>();
      for (const { lane } of rows) counts.set(lane, (counts.get(lane) ?? 0) + 1);
      for (const state of asked) {
        const isFull = (counts.get(state.lane) ?? 0) >= state.dueLimit;
        state.dueLimit = isFull ? Math.min(2 * state.dueLimit, batchSize) : smallest();
      }
      rows = options.seen(stillAsked(asked, rows));
    } finally {
      arrival = window.endRead(read, rows);
    }
    if (arrival.fresh > 0) {
      telemetry({ name: "relay.read", box: boxName, count: arrival.fresh });
      options.arrived(arrival.held);
    }
    return arrival.fresh;
  }

  async function dueLoop(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const restMs = dueAt - runtime.monotonic();
      if (restMs > 0) {
        await due.wait(signal, restMs);
        continue;
      }
      // Before the look: what comes due meanwhile sets it again.
      dueAt = runtime.monotonic() + pollIntervalMs;
      if (lanes.length === 0 || window.buffered >= 4 * batchSize) continue;
      try {
        if ((await readDue()) > 0) reader.dueIn(1);
      } catch (error) {
        reader.dueIn(Math.max(1, options.failed(error)));
      }
    }
  }

  /** Takes in what those have left that were open and are no longer: how much it was. */
  async function readLeft(open: ReadonlySet<number>): Promise<number> {
    const ended = [...openSince.keys()].filter((number) => !open.has(number));
    const after = Math.min(...ended.map((number) => openSince.get(number) as number));
    const found = await readLate(after);
    for (const number of ended) openSince.delete(number);
    // One that is new here has begun after the last read, and so has drawn its positions after those that this one saw.
    for (const number of open) if (!openSince.has(number)) openSince.set(number, highest);
    return found;
  }

  /** Takes in the rows beyond a position that their lane was read past. */
  async function readLate(after: number): Promise<number> {
    const asked = lanes.filter(({ cursor }) => cursor > after);
    if (asked.length === 0) return 0;
    const read = window.beginRead();
    let rows: Awaited<ReturnType<Box["late"]>> = [];
    let arrival: Arrival;
    try {
      rows = await box.late(
        asked.map(({ lane, cursor }) => ({ lane, after, upTo: cursor, known: window.known(lane, after) })),
      );
      rows = options.seen(stillAsked(asked, rows));
    } finally {
      arrival = window.endRead(read, rows);
    }
    for (const { message, ageMs } of rows) telemetry({ name: "message.late", box: boxName, id: message.id, ageMs });
    if (arrival.held.length > 0) options.arrived(arrival.held);
    return arrival.fresh;
  }

  /**
   * Looks all the way down, seldom: for what no list of open transactions tells, such as a row that was written by hand. It
   * walks over everything that was settled and not yet vacuumed away.
   */
  async function sweepLoop(signal: AbortSignal): Promise<void> {
    const never = createWake(runtime);
    let pauseMs = shortestIntervalMs;
    while (!signal.aborted) {
      await never.wait(signal, pauseMs);
      if (signal.aborted) return;
      const startedAt = runtime.monotonic();
      try {
        if ((await readLate(0)) > 0) options.arrived([]);
        pauseMs = Math.max(patience * (runtime.monotonic() - startedAt), shortestIntervalMs);
      } catch (error) {
        pauseMs = Math.max(options.failed(error), shortestIntervalMs);
      }
    }
  }

  const reader: Reader = {
    add(added) {
      for (const lane of added) byLane.set(lane, { lane, cursor: 0, limit: 1, dueLimit: 1, count: 0 });
      lanes = [...byLane.values()];
      for (const state of lanes) state.limit = state.dueLimit = smallest();
      room.wake();
      pause.wake();
      reader.dueIn(0);
    },
    remove(lane) {
      byLane.delete(lane);
      lanes = [...byLane.values()];
    },
    roomLeft() {
      if (window.buffered < 2 * batchSize) room.wake();
    },
    hinted() {
      pauseMs = 0;
      pause.wake();
    },
    dueIn(ms) {
      const at = runtime.monotonic() + ms;
      if (at >= dueAt) return;
      dueAt = at;
      due.wake();
    },
    run: async (signal) => void (await Promise.all([tipLoop(signal), dueLoop(signal), sweepLoop(signal)])),
  };
  return reader;
}
