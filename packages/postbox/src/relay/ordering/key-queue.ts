import { insertAscending } from "../../internal/ascending.js";
import type { Row, Settlement } from "../../store.js";
import type { Reads } from "../reading/reads.js";

/** Most keys never have a row whose failure is to be stored: they share this. */
const nothing: ReadonlySet<number> = new Set();

/** The rows of one key that this relay knows of, and what keeps the next one from being sent. Rows are named by position. */
export class KeyQueue {
  readonly lane: number;
  /** What can be sent next, in order of position. */
  rows: Row[] = [];
  inFlight = 0;
  /** Whether it is in the list of what can be sent. */
  listed = false;
  /** What has become of an earlier row in the batch in flight: what is behind it has not failed by itself. */
  ahead: "held" | "parked" | undefined;
  /** Those in flight that are from `pending`, ascending. */
  readonly #sent: number[] = [];
  /** Rows that failed, or stood behind one, and are not stored so yet. */
  #failed: ReadonlySet<number> = nothing;
  /** The number of the last read that had begun when such a failure was stored: what those reads saw of this key is too old. */
  #staleUpTo = 0;
  /** The lowest position that those reads may not have seen where it is. */
  #staleFrom = 0;
  /** How many rows are to be parked or dropped. Until that is stored, a later one sent now could be overtaken by them. */
  #parking = 0;

  constructor(lane: number) {
    this.lane = lane;
  }

  get canSend(): boolean {
    return !this.listed && this.inFlight === 0 && this.#parking === 0 && this.rows.length > 0;
  }

  /** Whether a row has failed, and that is not stored yet. */
  get isUnstored(): boolean {
    return this.#failed.size > 0;
  }

  /** Whether there is nothing more to know of it. A read may still bring what it saw before a failure was stored. */
  isOver(reads: Reads): boolean {
    const isIdle = this.rows.length === 0 && this.inFlight === 0 && this.#failed.size === 0 && this.#parking === 0;
    return isIdle && !reads.isUnderWayUpTo(this.#staleUpTo);
  }

  /** Mostly the last one: what an operator has put back, or what has committed late, has an earlier place. */
  add(row: Row): void {
    insertAscending(this.rows, row, positionOf);
  }

  /** Takes the first rows out, to be sent. */
  take(count: number): void {
    if (count === this.rows.length) this.rows = [];
    // Much faster than to splice where a queue is long.
    else if (count === 1) this.rows.shift();
    else this.rows.splice(0, count);
    this.inFlight += count;
  }

  departs({ waiting, position }: Row): void {
    if (!waiting) insertAscending(this.#sent, position, itself);
  }

  landed({ waiting, position }: Row): void {
    this.inFlight--;
    // Mostly the first: outcomes come about in order.
    const place = waiting ? -1 : this.#sent.indexOf(position);
    if (place >= 0) this.#sent.splice(place, 1);
    if (this.inFlight === 0) this.ahead = undefined;
  }

  /** Whether an earlier row is in flight that is stored as pending. */
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

  /** What became of one of its rows is stored. */
  stored({ position }: Row, to: Settlement["to"], reads: Reads): void {
    if ((to === "wait" || to === "pending") && (this.#failed as Set<number>).delete(position)) {
      this.#staleFrom = reads.isUnderWayUpTo(this.#staleUpTo) ? Math.min(this.#staleFrom, position) : position;
      this.#staleUpTo = reads.last;
    } else if ((to === "parked" || to === "dropped") && this.#parking > 0) this.#parking--;
  }

  /** Whether this read began before all that has failed was stored. */
  isNewerThan(read: number): boolean {
    return this.#failed.size > 0 || read <= this.#staleUpTo;
  }

  /** Whether a row with a lower position is not back in `wait` yet, or not for all that this read could see. */
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
