import type { Row } from "../../store.js";

/** A lane that is read. */
export interface ReadLane {
  readonly lane: number;
  /** The lane has been read up to this position. Rows that commit below it later are found by looking back. */
  cursor: number;
  /** How many rows the next read may bring. */
  limit: number;
  /** The same for rows in `wait`. */
  dueLimit: number;
}

/** The lanes that are read, and how far. A lane that is lost and gained again is another object: it is read from its beginning. */
export class Lanes {
  readonly #batchSize: number;
  readonly #byNumber = new Map<number, ReadLane>();
  /** Replaced whenever a lane is added or removed. */
  all: readonly ReadLane[] = [];

  constructor(batchSize: number) {
    this.#batchSize = batchSize;
  }

  /** The limit of a lane that is not known to have much. */
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

  /** Whether this lane was not lost since it was asked for. */
  has(asked: ReadLane): boolean {
    return this.#byNumber.get(asked.lane) === asked;
  }

  /** Of rows that were read in these lanes, those of lanes that were not lost meanwhile. */
  still<R extends Row>(asked: readonly ReadLane[], rows: readonly R[]): readonly R[] {
    const same = new Set(asked.filter((state) => this.has(state)).map(({ lane }) => lane));
    return same.size === asked.length ? rows : rows.filter(({ lane }) => same.has(lane));
  }
}
