import type { Row } from "../../store.js";

/** A lane that is being read. */
export interface ReadLane {
  readonly lane: number;
  /** The lane has been read up to this position. `LateCommits` finds rows that commit below it later. */
  cursor: number;
  /** How many rows the next read may return. */
  limit: number;
  /** The same for rows in `wait`. */
  dueLimit: number;
}

/**
 * The lanes that are read, and how far. A lane that is lost and regained is a new object, and is read from its start.
 */
export class Lanes {
  readonly #batchSize: number;
  readonly #byNumber = new Map<number, ReadLane>();
  /** A new array whenever a lane is added or removed. */
  all: readonly ReadLane[] = [];

  constructor(batchSize: number) {
    this.#batchSize = batchSize;
  }

  /** The limit of a lane that is not known to have many rows. */
  get smallest(): number {
    return Math.max(1, Math.ceil(this.#batchSize / this.all.length));
  }

  add(lanes: readonly number[]): void {
    for (const lane of lanes) this.#byNumber.set(lane, { lane, cursor: 0, limit: 1, dueLimit: 1 });
    this.all = [...this.#byNumber.values()];
    this.limitTo(this.smallest);
  }

  remove(lane: number): void {
    this.#byNumber.delete(lane);
    this.all = [...this.#byNumber.values()];
  }

  limitTo(rows: number): void {
    for (const state of this.all) state.limit = state.dueLimit = rows;
  }

  /** Whether this lane has not been lost since it was asked for. */
  has(asked: ReadLane): boolean {
    return this.#byNumber.get(asked.lane) === asked;
  }

  /** Of the rows that were read in these lanes, those whose lane has not been lost since. */
  still<R extends Row>(asked: readonly ReadLane[], rows: readonly R[]): readonly R[] {
    const same = new Set(asked.filter((state) => this.has(state)).map(({ lane }) => lane));
    return same.size === asked.length ? rows : rows.filter(({ lane }) => same.has(lane));
  }
}
