import { PostboxError } from "../../errors.js";
import type { Runtime } from "../../internal/runtime.js";
import { createWake } from "../../internal/wake.js";
import type { Box, LaneRows, Row } from "../../store.js";
import type { Telemetry } from "../../telemetry/events.js";
import type { Arrival, Window } from "../ordering/window.js";
import { createLateCommits, type LaneCursor } from "./late-commits.js";

export interface ReaderOptions {
  readonly box: Box;
  readonly boxName: string;
  readonly window: Window;
  readonly batchSize: number;
  /** One read brings no more bytes than this, and none is begun while as many are buffered. */
  readonly maxInFlightBytes: number;
  readonly pollIntervalMs: number;
  readonly runtime: Runtime;
  readonly telemetry: Telemetry;
  /** How long to wait after so many failures in a row. Ends the engine for what no retry can mend. */
  failed(error: unknown, failures: number): number;
  /** Rows were taken into the window; these of them are held. */
  arrived(held: readonly Row[]): void;
  /** A read of these lanes, begun after they were added, found this position to be the last one drawn. Called before `arrived`. */
  drawn(lanes: readonly number[], position: number): void;
  /** Another server answers than before: what is known of the lanes may be of other messages. */
  serverChanged(server: string): void;
}

interface LaneState {
  readonly lane: number;
  /** Everything up to here has been read; what commits below it later is found by looking back. */
  cursor: number;
  limit: number;
  /** The same for what waits. */
  dueLimit: number;
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
  notified(): void;
  /** Something waits that is due in `ms`: looks for it then, if not earlier. */
  dueIn(ms: number): void;
  /** This transaction, which reads may have shown as open, has appended nothing. */
  appendedNothing(transaction: number): void;
  /** All its loops, until the signal is aborted. */
  run(signal: AbortSignal): Promise<void>;
}

const mostHalvings = 20;

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
  const dueRoom = createWake(runtime);
  /** Something is due, and there is no room for it. */
  let dueWaits = false;
  /** Lanes that the last read left out. */
  let leftOut: readonly LaneState[] = [];
  /** When to look for what is due again. */
  let dueAt = 0;
  /** The highest position that was found, or known to be drawn. */
  let highest = 0;
  let server: string | undefined;
  let drawn = 0;
  /** Where the next read begins: lanes that the bytes of the last one did not reach come first. */
  let start = 0;
  /** Each halves what a read may bring: one that took too long would take too long again. */
  let halvings = 0;
  const maxBytes = () => Math.max(1, Math.floor(options.maxInFlightBytes / 2 ** halvings));
  /** As many rows are read at once, and buffered. More would only be older when they are sent, and cost time to keep. */
  const most = 2 * batchSize;
  /** Those that wait behind their own key count less: one hot key must not keep all others from being read. */
  const isFull = () =>
    window.sendable >= most || window.buffered >= 8 * most || window.bufferedBytes >= options.maxInFlightBytes;
  /** Nor must its lane take all the room. */
  const share = () => Math.max(most / 4, most / lanes.length);
  const isCrowded = ({ lane }: LaneState) => window.bufferedIn(lane) >= share();
  const late = createLateCommits({ ...options, failed, lanes: () => lanes, stillAsked, isFull, maxBytes });

  /** How long a loop waits after so many failures in a row. Each counts its own: together they would count an outage twice over. */
  function failed(error: unknown, failures: number): number {
    if (error instanceof PostboxError && error.code === "store-timeout") {
      halvings = Math.min(halvings + 1, mostHalvings);
      for (const state of byLane.values()) state.limit = state.dueLimit = 1;
    }
    return options.failed(error, failures);
  }

  /** A lane may have been lost, and even gained anew, while it was read. */
  function stillAsked<R extends Row>(asked: readonly LaneCursor[], rows: readonly R[]): readonly R[] {
    const same = new Set(asked.filter((state) => byLane.get(state.lane) === state).map(({ lane }) => lane));
    return same.size === asked.length ? rows : rows.filter(({ lane }) => same.has(lane));
  }

  /**
   * One look at the tips, each lane from where it was read to. Answers whether some lane may have more.
   *
   * What a transaction brings that was open while its lane was read past its positions is taken in before what this read
   * found: that may be of the same key, and was appended later.
   */
  async function readTips(signal: AbortSignal): Promise<"full" | "some" | "none"> {
    const read = window.beginRead();
    let rows: readonly Row[] = [];
    let arrival: Arrival;
    let before = 0;
    let asked: readonly LaneState[] = [];
    let found: LaneRows;
    try {
      leftOut = lanes.filter(isCrowded);
      asked = [...lanes.slice(start), ...lanes.slice(0, start)].filter((state) => !leftOut.includes(state));
      const reads = asked.map(({ lane, cursor, limit }) => ({ lane, after: cursor, limit }));
      found = await box.read(reads, { maxBytes: maxBytes() });
      if (found.rows.length > 0 && runtime.failpoint) await runtime.failpoint("relay.read");
      const isOther = server !== undefined && found.server !== server;
      // Positions that were drawn are not drawn again, unless the database was put back to an earlier state.
      const wentBack = found.drawn > 0 && found.drawn < drawn;
      server = found.server;
      drawn = found.drawn;
      if (isOther || wentBack) {
        highest = 0;
        late.forget();
        options.serverChanged(server ?? "unknown");
        return "some";
      }
      // None, where positions are drawn ahead.
      if (drawn > 0) {
        const still = asked.filter((state) => byLane.get(state.lane) === state);
        options.drawn(
          still.map(({ lane }) => lane),
          drawn,
        );
      }
      before = await late.takeIn(found.open, highest, signal);
      rows = stillAsked(asked, found.rows);
    } finally {
      arrival = window.endRead(read, rows);
    }
    const fresh = before + arrival.fresh;
    if (arrival.fresh > 0) options.arrived(arrival.held);
    if (fresh > 0) telemetry({ name: "relay.read", box: boxName, count: fresh });
    if (halvings > 0) halvings--;
    for (const { lane, position } of rows) {
      const state = byLane.get(lane);
      if (state !== undefined && position > state.cursor) state.cursor = position;
      if (position > highest) highest = position;
    }
    let full = false;
    let cutAt: number | undefined;
    for (const state of asked) {
      const hasMore = found.more.has(state.lane);
      if (!hasMore && byLane.get(state.lane) === state) state.cursor = Math.max(state.cursor, found.drawn);
      full ||= hasMore;
      state.limit = hasMore ? Math.min(state.limit * 2, batchSize) : smallest();
      cutAt ??= hasMore ? lanes.indexOf(state) : undefined;
    }
    if (found.drawn > highest) highest = found.drawn;
    start = cutAt === undefined ? 0 : (cutAt + 1) % Math.max(1, lanes.length);
    // Many full lanes share what one alone may have.
    const wanted = lanes.reduce((sum, { limit }) => sum + limit, 0);
    if (wanted > most)
      for (const state of lanes) state.limit = Math.max(smallest(), Math.floor((state.limit * most) / wanted));
    return full ? "full" : fresh > 0 ? "some" : "none";
  }

  async function tipLoop(signal: AbortSignal): Promise<void> {
    let failures = 0;
    while (!signal.aborted) {
      if (lanes.every(isCrowded) || isFull() || dueWaits) {
        await room.wait(signal);
        continue;
      }
      const startedAt = runtime.monotonic();
      try {
        const found = await readTips(signal);
        failures = 0;
        const empty = found === "none" && window.buffered === 0 && window.inFlight === 0;
        if (empty && !drained) telemetry({ name: "relay.drained", box: boxName });
        drained = empty;
        pauseMs = found === "full" ? 0 : found === "some" ? 1 : Math.min(pollIntervalMs, Math.max(1, pauseMs * 2));
      } catch (error) {
        pauseMs = failed(error, ++failures);
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
      // What the window has of a key comes first anyway: reading it again with every row that leaves would cost the square.
      const except = window.waitingUnder();
      rows = await box.due(
        asked.map(({ lane, dueLimit }) => ({ lane, limit: dueLimit })),
        { maxBytes: maxBytes(), except },
      );
      const counts = new Map<number, number>();
      for (const { lane } of rows) counts.set(lane, (counts.get(lane) ?? 0) + 1);
      for (const state of asked) {
        const isFull = (counts.get(state.lane) ?? 0) >= state.dueLimit;
        state.dueLimit = isFull ? Math.min(2 * state.dueLimit, batchSize) : smallest();
      }
      rows = stillAsked(asked, rows);
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
    let failures = 0;
    while (!signal.aborted) {
      const restMs = dueAt - runtime.monotonic();
      if (restMs > 0) {
        await due.wait(signal, restMs);
        continue;
      }
      // Before the look: what comes due meanwhile sets it again.
      dueAt = runtime.monotonic() + pollIntervalMs;
      if (lanes.length === 0) continue;
      // What is due goes before what is new, which would take all the room there ever is.
      dueWaits = isFull();
      while (isFull() && !signal.aborted) await dueRoom.wait(signal);
      if (signal.aborted) return;
      try {
        if ((await readDue()) > 0) reader.dueIn(1);
        failures = 0;
      } catch (error) {
        dueAt = runtime.monotonic() + Math.max(1, failed(error, ++failures));
      }
      if (dueWaits) room.wake();
      dueWaits = false;
    }
  }

  const reader: Reader = {
    add(added) {
      for (const lane of added) byLane.set(lane, { lane, cursor: 0, limit: 1, dueLimit: 1 });
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
      if (isFull() || window.sendable >= most / 2) return;
      if (leftOut.some(({ lane }) => window.bufferedIn(lane) < share() / 2)) {
        leftOut = [];
        pauseMs = 0;
        pause.wake();
      }
      room.wake();
      dueRoom.wake();
      late.roomLeft();
    },
    appendedNothing: (transaction) => late.appendedNothing(transaction),
    notified() {
      pauseMs = 0;
      pause.wake();
    },
    dueIn(ms) {
      const at = runtime.monotonic() + ms;
      if (at >= dueAt) return;
      dueAt = at;
      due.wake();
    },
    run: async (signal) => void (await Promise.all([tipLoop(signal), dueLoop(signal), late.sweep(signal)])),
  };
  return reader;
}
