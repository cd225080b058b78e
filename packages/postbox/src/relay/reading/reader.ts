import { PostboxError } from "../../errors.js";
import { createWake, type Wake } from "../../internal/wake.js";
import type { LaneRows, Row, Writers } from "../../store.js";
import type { DrainContext } from "../context.js";
import type { Arrival, Window } from "../ordering/window.js";
import { readDue } from "./due-rows.js";
import { LaneTips } from "./lane-tips.js";
import { Lanes } from "./lanes.js";
import { LateCommits } from "./late-commits.js";
import type { Admitted, Tips } from "./tips.js";
import { TotalTips } from "./total-tips.js";

export interface ReaderOptions extends Omit<DrainContext, "failed"> {
  readonly window: Window;
  /** Returns the delay after this many consecutive failures. Ends the engine if retrying can never succeed. */
  failed(error: unknown, failures: number): number;
  /** Rows were accepted into the window; the keys of these are held. */
  arrived(held: readonly Row[]): void;
  /**
   * A read of these lanes, begun after they were added, found this position to be the last one drawn. Called before
   * `arrived`.
   */
  drawn(lanes: readonly number[], position: number): void;
  /** Another server answers than before: what is known of the lanes may belong to other messages. */
  serverChanged(server: string): void;
}

const mostHalvings = 20;

/** Brings rows into the window: new rows from the tips of the lanes, waiting rows that are due, and late commits. */
export class Reader {
  readonly #options: ReaderOptions;
  readonly #lanes: Lanes;
  readonly #total: TotalTips | undefined;
  readonly #tips: Tips;
  /** Absent if the box is in commit order. */
  readonly #late: LateCommits | undefined;
  readonly #most: number;
  readonly #room: Wake;
  readonly #pause: Wake;
  readonly #due: Wake;
  readonly #dueRoom: Wake;
  #pauseMs = 0;
  #drained = false;
  /** Rows are due, and the window has no room for them. */
  #dueWaits = false;
  /** When to read due rows next. */
  #dueAt = 0;
  /** No read begins before this time. */
  #notBefore = 0;
  #server: string | undefined;
  #drawn = 0;
  /** Each one halves the bytes of a read: a read that has timed out would time out again. */
  #halvings = 0;

  constructor(options: ReaderOptions) {
    const { runtime, batchSize, order } = options;
    this.#options = options;
    this.#lanes = new Lanes(batchSize);
    this.#most = 2 * batchSize;
    [this.#room, this.#pause] = [createWake(runtime), createWake(runtime)];
    [this.#due, this.#dueRoom] = [createWake(runtime), createWake(runtime)];
    const maxBytes = () => this.#maxBytes;
    const common = { ...options, lanes: this.#lanes, maxBytes };
    const isFull = () => this.#isFull;
    const failed = (error: unknown, failures: number) => this.#failed(error, failures);
    this.#late = options.box.inCommitOrder ? undefined : new LateCommits({ ...common, isFull, failed });
    const tips = { ...common, most: this.#most, ...(this.#late && { late: this.#late }) };
    this.#total = order === "total" ? new TotalTips(tips) : undefined;
    this.#tips = this.#total ?? new LaneTips(tips);
  }

  /** Also reads these lanes, from their start. */
  add(lanes: readonly number[]): void {
    this.#lanes.add(lanes);
    this.#notBefore = 0;
    for (const wake of [this.#room, this.#pause, this.#dueRoom]) wake.wake();
    this.dueIn(0);
  }

  /** Stops reading this lane. */
  remove(lane: number): void {
    this.#lanes.remove(lane);
  }

  /** A row has failed in its place. Pauses all reads for `inMs`, then reads again from that row on. */
  readAgain(position: number, inMs: number): void {
    this.#total?.readAgain(position);
    this.#notBefore = this.#options.runtime.monotonic() + inMs;
  }

  /** Rows of the window were sent: there may be room again. */
  roomLeft(): void {
    if (this.#isFull || this.#options.window.sendable >= this.#most / 2) return;
    if (this.#tips.hasRoomAgain()) this.notified();
    this.#room.wake();
    this.#dueRoom.wake();
    this.#late?.roomLeft();
  }

  /** A row was appended, perhaps not committed yet: reads at once, and again after 1, 2, 4 … ms. */
  notified(): void {
    this.#pauseMs = 0;
    this.#pause.wake();
  }

  /** A waiting row is due in `ms`: reads it then, if no earlier read is planned. */
  dueIn(ms: number): void {
    const at = this.#options.runtime.monotonic() + ms;
    if (at >= this.#dueAt) return;
    this.#dueAt = at;
    this.#due.wake();
  }

  /** This writer, which reads may have reported as in progress, has appended nothing. */
  appendedNothing(writer: Writers): void {
    this.#late?.appendedNothing(writer);
  }

  /** Runs all its loops until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([this.#tipLoop(signal), this.#dueLoop(signal), this.#late?.sweep(signal)]);
  }

  get #isFull(): boolean {
    return this.#tips.isFull || this.#options.window.bufferedBytes >= this.#options.maxInFlightBytes;
  }

  get #maxBytes(): number {
    return Math.max(1, Math.floor(this.#options.maxInFlightBytes / 2 ** this.#halvings));
  }

  get #restMs(): number {
    return this.#notBefore - this.#options.runtime.monotonic();
  }

  /**
   * The delay of a loop after this many consecutive failures. Each loop counts its own: a common count would count an
   * outage twice.
   */
  #failed(error: unknown, failures: number): number {
    if (error instanceof PostboxError && error.code === "store-timeout") {
      this.#halvings = Math.min(this.#halvings + 1, mostHalvings);
      this.#lanes.limitTo(1);
    }
    return this.#options.failed(error, failures);
  }

  async #tipLoop(signal: AbortSignal): Promise<void> {
    const { runtime } = this.#options;
    let failures = 0;
    while (!signal.aborted) {
      if (this.#isFull || !this.#tips.canRead || this.#dueWaits) {
        await this.#room.wait(signal);
        continue;
      }
      const heldUpMs = this.#restMs;
      if (heldUpMs > 0) {
        await this.#pause.wait(signal, heldUpMs);
        continue;
      }
      const startedAt = runtime.monotonic();
      try {
        this.#pauseMs = this.#pauseAfter(await this.#readTips(signal));
        failures = 0;
      } catch (error) {
        this.#pauseMs = this.#failed(error, ++failures);
      }
      // The interval counts from the start of one read to the start of the next, but always leaves a rest.
      const restMs = Math.max(this.#pauseMs / 2, this.#pauseMs - (runtime.monotonic() - startedAt));
      if (this.#pauseMs > 0) await this.#pause.wait(signal, restMs);
    }
  }

  #pauseAfter({ fresh, more, blocked }: { readonly fresh: number; readonly more: boolean; readonly blocked: boolean }) {
    const { window, telemetry, boxName, pollIntervalMs } = this.#options;
    const isEmpty = !more && !blocked && fresh === 0 && window.buffered === 0 && window.inFlight === 0;
    if (isEmpty && !this.#drained) telemetry({ name: "relay.drained", box: boxName });
    this.#drained = isEmpty;
    if (more) return 0;
    return fresh > 0 ? 1 : Math.min(pollIntervalMs, Math.max(1, this.#pauseMs * 2));
  }

  /** Reads the tips once, each lane from its cursor. */
  async #readTips(signal: AbortSignal) {
    const { box, window, runtime } = this.#options;
    const read = window.beginRead();
    let admitted: Admitted | undefined;
    let arrival: Arrival;
    try {
      const asked = this.#lanes.all;
      const found = await box.read(this.#tips.next(), { maxBytes: this.#maxBytes });
      if (found.rows.length > 0 && runtime.failpoint) await runtime.failpoint("relay.read");
      if (this.#isOther(found)) return { fresh: 1, more: false, blocked: false };
      // 0 where the store cannot tell.
      if (found.drawn > 0) {
        const still = asked.filter((state) => this.#lanes.has(state));
        this.#options.drawn(
          still.map(({ lane }) => lane),
          found.drawn,
        );
      }
      admitted = await this.#tips.admit(found, signal);
    } finally {
      arrival = window.endRead(read, admitted?.rows ?? []);
    }
    if (this.#halvings > 0) this.#halvings--;
    return { ...admitted, fresh: this.#arrived(arrival, admitted.late) };
  }

  /** Whether another server answered, or the same one with an earlier state. Also reports that. */
  #isOther({ server, drawn }: LaneRows): boolean {
    const isOther = this.#server !== undefined && server !== this.#server;
    // The last position drawn never decreases, unless the database was restored to an earlier state.
    const wentBack = drawn > 0 && drawn < this.#drawn;
    this.#server = server;
    this.#drawn = drawn;
    if (!isOther && !wentBack) return false;
    this.#tips.forget();
    this.#options.serverChanged(server ?? "unknown");
    return true;
  }

  /** Returns how many rows were new, including `before`. */
  #arrived({ fresh, held }: Arrival, before = 0): number {
    const { telemetry, boxName, arrived } = this.#options;
    if (fresh > 0) arrived(held);
    if (before + fresh > 0) telemetry({ name: "relay.read", box: boxName, count: before + fresh });
    return before + fresh;
  }

  async #dueLoop(signal: AbortSignal): Promise<void> {
    const { runtime, pollIntervalMs } = this.#options;
    let failures = 0;
    while (!signal.aborted) {
      const restMs = Math.max(this.#dueAt - runtime.monotonic(), this.#restMs);
      if (restMs > 0) {
        await this.#due.wait(signal, restMs);
        continue;
      }
      // Set before the read: a row that becomes due meanwhile sets it again.
      this.#dueAt = runtime.monotonic() + pollIntervalMs;
      if (this.#lanes.all.length === 0) continue;
      // Due rows have precedence over new ones, which would fill every room in the window.
      this.#dueWaits = this.#isFull;
      while (this.#isFull && !signal.aborted) await this.#dueRoom.wait(signal);
      if (signal.aborted) return;
      try {
        if ((await this.#readDue()) > 0) this.dueIn(1);
        failures = 0;
      } catch (error) {
        this.#dueAt = runtime.monotonic() + Math.max(1, this.#failed(error, ++failures));
      }
      if (this.#dueWaits) this.#room.wake();
      this.#dueWaits = false;
    }
  }

  async #readDue(): Promise<number> {
    const { box, window, batchSize } = this.#options;
    const read = window.beginRead();
    let rows: readonly Row[] = [];
    let arrival: Arrival;
    try {
      rows = await readDue(box, this.#lanes, window, { batchSize, maxBytes: this.#maxBytes });
    } finally {
      arrival = window.endRead(read, rows);
    }
    return this.#arrived(arrival);
  }
}
