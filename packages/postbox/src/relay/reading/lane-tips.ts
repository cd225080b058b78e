import type { LaneRead, LaneRows } from "../../store.js";
import type { Window } from "../ordering/window.js";
import type { Lanes, ReadLane } from "./lanes.js";
import type { LateCommits } from "./late-commits.js";
import type { Admitted, Tips } from "./tips.js";

export interface LaneTipsOptions {
  readonly lanes: Lanes;
  readonly window: Window;
  /** Absent where nothing commits late. */
  readonly late?: LateCommits;
  /** How many rows are read at once, and buffered. More would only be older when they are sent, and cost time to keep. */
  readonly most: number;
  /** What a lane may have at most, however many others want something. */
  readonly batchSize: number;
}

/** Reads each lane for itself, from where it was read to. The limit of a lane grows while the lane has more. */
export class LaneTips implements Tips {
  readonly #options: LaneTipsOptions;
  #asked: readonly ReadLane[] = [];
  #leftOut: readonly ReadLane[] = [];
  /** Where the next read begins: lanes that the bytes of the last one did not reach come first. */
  #start = 0;
  /** The highest position that was found, or known to be drawn. */
  #highest = 0;

  constructor(options: LaneTipsOptions) {
    this.#options = options;
  }

  /** Rows that wait behind their own key count less: one hot key must not keep all others from being read. */
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
   * What a writer has left that was in progress while its lane was read past its positions is taken in before what this read found,
   * which may be of the same key and was appended later.
   */
  async admit({ rows: found, writers, more, drawn }: LaneRows, signal: AbortSignal): Promise<Admitted> {
    const asked = this.#asked;
    const { lanes, late } = this.#options;
    const before = late && writers ? await late.takeIn(writers, this.#highest, signal) : 0;
    const rows = lanes.still(asked, found);
    const cursors = new Map(rows.map(({ lane, position }) => [lane, position]));
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
    // Many full lanes share what one alone may have.
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

  /** One lane must not take all the room. */
  get #share(): number {
    const { most, lanes } = this.#options;
    return Math.max(most / 4, most / lanes.all.length);
  }

  #isCrowded({ lane }: ReadLane): boolean {
    return this.#options.window.bufferedIn(lane) >= this.#share;
  }
}
