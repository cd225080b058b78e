import type { Runtime } from "../internal/runtime.js";
import { createWake } from "../internal/wake.js";
import type { Box, LaneGap, Row } from "../store.js";
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
  count: number;
}

/** How far the lanes had been read at a moment, and the first transaction that had not begun by then. */
interface Mark {
  readonly at: number;
  readonly next: number;
  readonly cursors: ReadonlyMap<number, number>;
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
  /** Both loops, until the signal is aborted. */
  run(signal: AbortSignal): Promise<void>;
}

/** The share of time that looking for late commits may take: an interval is so many times its cost. */
const patience = 20;
const longestIntervalMs = 60_000;
/** How far behind the tip the frequent look goes: most transactions are shorter. What is older, the rare one finds. */
const recentMs = 5_000;

export function createReader(options: ReaderOptions): Reader {
  const { box, boxName, window, runtime, telemetry, pollIntervalMs, batchSize } = options;
  const byLane = new Map<number, LaneState>();
  let lanes: LaneState[] = [];
  const smallest = () => Math.max(1, Math.ceil(batchSize / lanes.length));
  const room = createWake(runtime);
  const pause = createWake(runtime);
  let pauseMs = 0;
  let drained = false;

  /** A lane may have been lost, and even gained anew, while it was read. */
  function stillAsked<R extends Row>(asked: readonly LaneState[], rows: readonly R[]): readonly R[] {
    const same = new Set(asked.filter((state) => byLane.get(state.lane) === state).map(({ lane }) => lane));
    return same.size === asked.length ? rows : rows.filter(({ lane }) => same.has(lane));
  }

  /** One look at the tips, each lane from where it was read to. Answers whether some lane may have more. */
  async function readTips(): Promise<"full" | "some" | "none"> {
    const read = window.beginRead();
    let rows: readonly Row[] = [];
    let arrival: Arrival;
    try {
      const asked = lanes;
      rows = await box.read(asked.map(({ lane, cursor, limit }) => ({ lane, after: cursor, limit })));
      if (rows.length > 0 && runtime.failpoint) await runtime.failpoint("relay.read");
      rows = options.seen(stillAsked(asked, rows));
    } finally {
      arrival = window.endRead(read, rows);
    }
    const { fresh, held } = arrival;
    for (const state of lanes) state.count = 0;
    for (const { lane, position, waiting } of rows) {
      const state = byLane.get(lane);
      if (state === undefined || waiting) continue;
      state.count++;
      if (position > state.cursor) state.cursor = position;
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
    // What waits is read again as long as its outcome is not stored: that is no news, and no reason to look again at once.
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
      try {
        const found = await readTips();
        const empty = found === "none" && window.buffered === 0 && window.inFlight === 0;
        if (empty && !drained) telemetry({ name: "relay.drained", box: boxName });
        drained = empty;
        pauseMs = found === "full" ? 0 : found === "some" ? 1 : Math.min(pollIntervalMs, Math.max(1, pauseMs * 2));
      } catch (error) {
        pauseMs = options.failed(error);
      }
      if (pauseMs > 0) await pause.wait(signal, pauseMs);
    }
  }

  /** Looks for late commits in a range of each lane; answers what it cost. */
  async function readLate(range: (lane: number, cursor: number) => readonly [number, number]): Promise<number> {
    const startedAt = runtime.monotonic();
    const gaps: LaneGap[] = [];
    const asked = lanes;
    for (const { lane, cursor } of asked) {
      const [after, end] = range(lane, cursor);
      const upTo = Math.min(end, cursor);
      if (upTo > after) gaps.push({ lane, after, upTo, known: window.known(lane) });
    }
    if (gaps.length === 0) return 0;
    const read = window.beginRead();
    let rows: Awaited<ReturnType<Box["late"]>> = [];
    let arrival: Arrival;
    try {
      rows = await box.late(gaps);
      rows = options.seen(stillAsked(asked, rows));
    } finally {
      arrival = window.endRead(read, rows);
    }
    for (const { message, ageMs } of rows) telemetry({ name: "message.late", box: boxName, id: message.id, ageMs });
    if (rows.length > 0) options.arrived(arrival.held);
    return runtime.monotonic() - startedAt;
  }

  /**
   * Twice: often and close behind the tip, and seldom and all the way down. Each is paced by its own cost, since it walks
   * over what was settled and not yet vacuumed away.
   *
   * Close means: down to where no transaction is open any more that may have drawn a position; or, where one stays open for
   * long, down to where the tips were some seconds ago. Below, the seldom look finds what that one brings.
   */
  async function lateLoop(signal: AbortSignal): Promise<void> {
    const never = createWake(runtime);
    let marks: Mark[] = [];
    let closed: Mark | undefined;
    let floor: Mark | undefined;
    const recent = { at: runtime.monotonic(), cost: 0 };
    const old = { at: runtime.monotonic(), cost: 0 };

    async function lookClose(): Promise<number> {
      if (lanes.every(({ lane, cursor }) => cursor <= cursorOf(floor, lane))) return 0;
      const mark = { at: runtime.monotonic(), cursors: new Map(lanes.map(({ lane, cursor }) => [lane, cursor])) };
      // Before the look, which so sees everything of the transactions that have ended by now.
      const { oldest, next } = await box.snapshot();
      const ended = marks.findLast((earlier) => earlier.next <= oldest) ?? closed;
      // What one that has ended may have left below: once all the way down, before it counts as closed.
      const from = ended === closed ? floor : closed;
      const cost = await readLate((lane, cursor) => [cursorOf(from, lane), cursor]);
      marks.push({ ...mark, next });
      const longAgo = marks.findLast(({ at }) => at <= mark.at - recentMs);
      closed = ended;
      floor = later(closed, later(longAgo, floor));
      marks = marks.filter((earlier) => earlier === closed || earlier.at >= (longAgo?.at ?? 0));
      return cost;
    }

    while (!signal.aborted) {
      const recentAt = recent.at + interval(recent.cost, 250);
      // With nothing open below, it is for what no snapshot tells: a database that was restored, say.
      const oldAt = old.at + interval(old.cost, floor === closed ? longestIntervalMs : 1000);
      await never.wait(signal, Math.max(0, Math.min(recentAt, oldAt) - runtime.monotonic()));
      if (signal.aborted) return;
      const look = runtime.monotonic() >= oldAt ? old : recent;
      try {
        look.cost = look === recent ? await lookClose() : await readLate((lane) => [0, cursorOf(floor, lane)]);
        look.at = runtime.monotonic();
      } catch (error) {
        recent.at = old.at = runtime.monotonic() + options.failed(error);
      }
    }
  }

  return {
    add(added) {
      for (const lane of added) byLane.set(lane, { lane, cursor: 0, limit: 1, count: 0 });
      lanes = [...byLane.values()];
      for (const state of lanes) state.limit = smallest();
      room.wake();
      pause.wake();
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
    run: async (signal) => void (await Promise.all([tipLoop(signal), lateLoop(signal)])),
  };
}

function cursorOf(mark: Mark | undefined, lane: number): number {
  return mark?.cursors.get(lane) ?? 0;
}

function later(a: Mark | undefined, b: Mark | undefined): Mark | undefined {
  return (a?.at ?? 0) >= (b?.at ?? 0) ? a : b;
}

function interval(costMs: number, shortestMs: number): number {
  return Math.min(Math.max(patience * costMs, shortestMs), longestIntervalMs);
}
