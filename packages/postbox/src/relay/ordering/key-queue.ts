import { insertAscending } from "../../internal/ascending.js";
import type { Row, Settlement } from "../../store.js";
import type { Reads } from "../reading/reads.js";

/** Shared by all keys without a failure to store, which are most. */
const nothing: ReadonlySet<number> = new Set();

/**
 * The rows of one key that this relay knows, and what keeps the next one from being sent. Rows are named by their
 * position.
 */
export class KeyQueue {
  readonly lane: number;
  /** Rows that can be sent next, in order of position. */
  rows: Row[] = [];
  inFlight = 0;
  /** Whether `Sendable` lists this key. */
  listed = false;
  /** What happened to an earlier row of the batch in flight. The rows behind it have not failed themselves. */
  ahead: "held" | "parked" | undefined;
  /** Rows in flight that came from `pending`, ascending. */
  readonly #sent: number[] = [];
  /** Rows that failed, or are held behind a failed one, until that is stored. */
  #failed: ReadonlySet<number> = nothing;
  /**
   * The last read that had begun when such a failure was stored. What this read and earlier ones saw of the key is
   * outdated.
   */
  #staleUpTo = 0;
  /** The lowest position that those reads may not have seen in its present place. */
  #staleFrom = 0;
  /**
   * How many rows are about to be parked or dropped. A later row that was sent before that is stored could overtake
   * them.
   */
  #parking = 0;

  constructor(lane: number) {
    this.lane = lane;
  }

  get canSend(): boolean {
    return !this.listed && this.inFlight === 0 && this.#parking === 0 && this.rows.length > 0;
  }

  /** Whether a row has failed and that is not stored yet. */
  get isUnstored(): boolean {
    return this.#failed.size > 0;
  }

  /** Whether it has no rows, and no outcome is left to store. */
  get isIdle(): boolean {
    return this.rows.length === 0 && this.inFlight === 0 && this.#failed.size === 0 && this.#parking === 0;
  }

  /**
   * Whether the queue can be forgotten. Not while a read is in progress that may show the key as it was before a
   * failure was stored.
   */
  isOver(reads: Reads): boolean {
    return this.isIdle && !reads.isUnderWayUpTo(this.#staleUpTo);
  }

  /** A row usually comes last. Rows that an operator has put back, or that have committed late, come earlier. */
  add(row: Row): void {
    insertAscending(this.rows, row, positionOf);
  }

  /** Removes the first rows, which are sent now. */
  take(count: number): void {
    if (count === this.rows.length) this.rows = [];
    // In a long queue, this is much faster than `splice`.
    else if (count === 1) this.rows.shift();
    else this.rows.splice(0, count);
    this.inFlight += count;
  }

  departs({ waiting, position }: Row): void {
    if (!waiting) insertAscending(this.#sent, position, itself);
  }

  landed({ waiting, position }: Row): void {
    this.inFlight--;
    // Usually the first one, since most outcomes arrive in order.
    const place = waiting ? -1 : this.#sent.indexOf(position);
    if (place === 0) this.#sent.shift();
    else if (place > 0) this.#sent.splice(place, 1);
    if (this.inFlight === 0) this.ahead = undefined;
  }

  /** Whether an earlier row is in flight that is stored in `pending`. */
  hasEarlierInFlight({ position }: Row): boolean {
    const [first] = this.#sent;
    return first !== undefined && first < position;
  }

  fails({ position }: Row): void {
    if (this.#failed === nothing) this.#failed = new Set();
    (this.#failed as Set<number>).add(position);
  }

  parks(): void {
    this.#parking++;
  }

  /** The outcome of one of its rows is stored. */
  stored({ position }: Row, to: Settlement["to"], reads: Reads): void {
    if ((to === "wait" || to === "pending") && (this.#failed as Set<number>).delete(position)) {
      this.#staleFrom = reads.isUnderWayUpTo(this.#staleUpTo) ? Math.min(this.#staleFrom, position) : position;
      this.#staleUpTo = reads.last;
    } else if ((to === "parked" || to === "dropped") && this.#parking > 0) this.#parking--;
  }

  /** Whether this read began before every failure was stored. */
  isNewerThan(read: number): boolean {
    return this.#failed.size > 0 || read <= this.#staleUpTo;
  }

  /** Whether this read may not have seen an earlier, failed row in `wait`. */
  isOvertaking({ position }: Row, read: number): boolean {
    for (const failed of this.#failed) if (failed < position) return true;
    return read <= this.#staleUpTo && this.#staleFrom < position;
  }
}

function itself(position: number): number {
  return position;
}

function positionOf({ position }: Row): number {
  return position;
}
