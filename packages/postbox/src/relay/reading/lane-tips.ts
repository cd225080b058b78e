import type { LaneRead, LaneRows } from "../../store.js";
import type { Window } from "../ordering/window.js";
import type { Lanes, ReadLane } from "./lanes.js";
import type { LateCommits } from "./late-commits.js";
import type { Admitted, Tips } from "./tips.js";

export interface LaneTipsOptions {
  readonly lanes: Lanes;
  readonly window: Window;
  /** Absent if the box is in commit order. */
  readonly late?: LateCommits;
  /**
   * How many rows are read at once, and buffered. Reading more would cost time to keep them, and they would be older
   * when they are sent.
   */
  readonly most: number;
  /** The highest limit of a single lane. */
  readonly batchSize: number;
}

/** Reads each lane on from its own cursor. The limit of a lane grows while the lane has more. */
export class LaneTips implements Tips {
  readonly #options: LaneTipsOptions;
  #asked: readonly ReadLane[] = [];
  #leftOut: readonly ReadLane[] = [];
  /** Where the next read begins. Lanes that the last one did not reach, because of its bytes, come first. */
  #start = 0;
  /** The highest position that was found, or is known to be drawn. */
  #highest = 0;

  constructor(options: LaneTipsOptions) {
    this.#options = options;
  }

  /** Rows that wait behind their own key count less, so that one hot key does not keep all others from being read. */
  get isFull(): boolean {
    const { window, most } = this.#options;
    return window.sendable >= most || window.buffered >= 8 * most;
  }

  get canRead(): boolean {
    return !this.#options.lanes.all.every((lane) => this.#isCrowded(lane));
  }

  next(): readonly LaneRead[] {
    const { all } = this.#options.lanes;
    this.#options.late?.begins();
    this.#leftOut = all.filter((lane) => this.#isCrowded(lane));
    this.#asked = [...all.slice(this.#start), ...all.slice(0, this.#start)].filter(
      (lane) => !this.#leftOut.includes(lane),
    );
    return this.#asked.map(({ lane, cursor, limit }) => ({ lane, after: cursor, limit }));
  }

  /**
   * Accepts late commits before the rows of this read. They may have a key in common, and the rows of this read were
   * appended later.
   */
  async admit({ rows: found, writers, more, drawn }: LaneRows, signal: AbortSignal): Promise<Admitted> {
    const asked = this.#asked;
    const { lanes, late } = this.#options;
    const before = late && writers ? await late.takeIn(writers, this.#highest, signal) : 0;
    const rows = lanes.still(asked, found);
    const cursors = new Map<number, number>();
    for (const { lane, position } of rows) cursors.set(lane, position);
    for (const state of asked) {
      if (!lanes.has(state)) continue;
      state.cursor = Math.max(state.cursor, cursors.get(state.lane) ?? 0, more.has(state.lane) ? 0 : drawn);
    }
    for (const { position } of rows) if (position > this.#highest) this.#highest = position;
    this.#highest = Math.max(this.#highest, drawn);
    this.#limit(asked, more);
    return { rows, late: before, more: more.size > 0, blocked: false };
  }

  #limit(asked: readonly ReadLane[], more: ReadonlySet<number>): void {
    const { lanes, most, batchSize } = this.#options;
    const { all, smallest } = lanes;
    for (const state of asked) state.limit = more.has(state.lane) ? Math.min(state.limit * 2, batchSize) : smallest;
    const cut = asked.find(({ lane }) => more.has(lane));
    this.#start = cut === undefined ? 0 : (all.indexOf(cut) + 1) % Math.max(1, all.length);
    // Many busy lanes share the limit that one alone may have.
    const wanted = all.reduce((sum, { limit }) => sum + limit, 0);
    if (wanted > most) {
      for (const state of all) state.limit = Math.max(smallest, Math.floor((state.limit * most) / wanted));
    }
  }

  hasRoomAgain(): boolean {
    const { window } = this.#options;
    if (!this.#leftOut.some(({ lane }) => window.bufferedIn(lane) < this.#share / 2)) return false;
    this.#leftOut = [];
    return true;
  }

  forget(): void {
    this.#highest = 0;
    this.#options.late?.forget();
  }

  /** The most buffered rows of one lane, which must not fill the buffer alone. */
  get #share(): number {
    const { most, lanes } = this.#options;
    return Math.max(most / 4, most / lanes.all.length);
  }

  #isCrowded({ lane }: ReadLane): boolean {
    return this.#options.window.bufferedIn(lane) >= this.#share;
  }
}
