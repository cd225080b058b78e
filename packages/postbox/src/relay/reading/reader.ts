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
  /** How long to wait after so many failures in a row. Ends the engine for what no retry can mend. */
  failed(error: unknown, failures: number): number;
  /** Rows were taken into the window; these of them are held. */
  arrived(held: readonly Row[]): void;
  /** A read of these lanes, begun after they were added, found this position to be the last one drawn. Called before `arrived`. */
  drawn(lanes: readonly number[], position: number): void;
  /** Another server answers than before: what is known of the lanes may be of other messages. */
  serverChanged(server: string): void;
}

const mostHalvings = 20;

/** Brings rows into the window: new ones from the tips of the lanes, those that wait and are due, and those that committed late. */
export class Reader {
  readonly #options: ReaderOptions;
  readonly #lanes: Lanes;
  readonly #total: TotalTips | undefined;
  readonly #tips: Tips;
  /** Absent where nothing commits late. */
  readonly #late: LateCommits | undefined;
  readonly #most: number;
  readonly #room: Wake;
  readonly #pause: Wake;
  readonly #due: Wake;
  readonly #dueRoom: Wake;
  #pauseMs = 0;
  #drained = false;
  /** Something is due, and there is no room for it. */
  #dueWaits = false;
  /** When to look for what is due again. */
  #dueAt = 0;
  /** Nothing is read before. */
  #notBefore = 0;
  #server: string | undefined;
  #drawn = 0;
  /** Each halves what a read may bring: one that took too long would take too long again. */
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

  /** Reads these lanes too, from their beginning. */
  add(lanes: readonly number[]): void {
    this.#lanes.add(lanes);
    this.#notBefore = 0;
    for (const wake of [this.#room, this.#pause, this.#dueRoom]) wake.wake();
    this.dueIn(0);
  }

  /** Reads this one no more. */
  remove(lane: number): void {
    this.#lanes.remove(lane);
  }

  /** A row has failed in its place: nothing is read for so long, and then that one and all that comes after it. */
  readAgain(position: number, inMs: number): void {
    this.#total?.readAgain(position);
    this.#notBefore = this.#options.runtime.monotonic() + inMs;
  }

  /** Some of the window was sent: there may be room again. */
  roomLeft(): void {
    if (this.#isFull || this.#options.window.sendable >= this.#most / 2) return;
    if (this.#tips.hasRoomAgain()) this.notified();
    this.#room.wake();
    this.#dueRoom.wake();
    this.#late?.roomLeft();
  }

  /** Something was appended, or is about to be: looks at once, and again after 1, 2, 4 … ms, as it may not have committed. */
  notified(): void {
    this.#pauseMs = 0;
    this.#pause.wake();
  }

  /** Something waits that is due in `ms`: looks for it then, if not earlier. */
  dueIn(ms: number): void {
    const at = this.#options.runtime.monotonic() + ms;
    if (at >= this.#dueAt) return;
    this.#dueAt = at;
    this.#due.wake();
  }

  /** This writer, which reads may have shown as in progress, has appended nothing. */
  appendedNothing(writer: Writers): void {
    this.#late?.appendedNothing(writer);
  }

  /** All its loops, until the signal is aborted. */
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

  /** How long a loop waits after so many failures in a row. Each counts its own: together they would count an outage twice over. */
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
      // From look to look, whatever a look takes; but never without a rest.
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

  /** One look at the tips, each lane from where it was read to. */
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
      // None, where positions are drawn ahead.
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

  /** Whether another server answered than before, or an earlier state of it. Then says so. */
  #isOther({ server, drawn }: LaneRows): boolean {
    const isOther = this.#server !== undefined && server !== this.#server;
    // Positions that were drawn are not drawn again, unless the database was put back to an earlier state.
    const wentBack = drawn > 0 && drawn < this.#drawn;
    this.#server = server;
    this.#drawn = drawn;
    if (!isOther && !wentBack) return false;
    this.#tips.forget();
    this.#options.serverChanged(server ?? "unknown");
    return true;
  }

  /** Answers with how much was new, counting `before`. */
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
      // Before the look: what comes due meanwhile sets it again.
      this.#dueAt = runtime.monotonic() + pollIntervalMs;
      if (this.#lanes.all.length === 0) continue;
      // What is due goes before what is new, which would take all the room there ever is.
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
