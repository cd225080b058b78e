import type { PostboxError } from "../errors.js";
import type { Row } from "../store.js";
import type { Outcome } from "../transport.js";

/** What a sender reports of a message. If its destination is unavailable, also how long until the next try. */
export type SendOutcome =
  | Exclude<Outcome, { readonly status: "unavailable" }>
  | { readonly status: "unavailable"; readonly error: Error; readonly retryInMs: number };

/** The outcome of a row. `released`: given back untried. `handled`: its handler has removed it from the box. */
export type RowOutcome = SendOutcome | { readonly status: "released" } | { readonly status: "handled" };

export interface Dispatched {
  /** Rows whose outcome is unknown because the transport failed: they may or may not have arrived. */
  readonly undecided: readonly Row[];
  readonly down?: PostboxError;
  /** Whether an established connection was lost while they were in flight. False for outages and timeouts. */
  readonly died?: boolean;
}

/** Takes rows from an engine and reports an outcome for each: a sender (`dispatch`) or a consumer (`source`). */
export interface Target {
  readonly name: string;
  /** Whether several rows of one key may be in flight at once, as on a `Sender`. */
  readonly keepsOrder: boolean;
  /** Whether it takes one row at a time, and the next one when `handOver` has resolved. */
  readonly oneByOne: boolean;
  /** How many rows it takes at once for now. */
  most(): number;
  connect?(signal: AbortSignal): Promise<void>;
  /** The outcome of a row whose destination is known to be unavailable; it is not handed over then. */
  refuses?(row: Row): SendOutcome | undefined;
  /**
   * Reports each row once, as soon as its outcome is known; with `idle`, that may be after this resolves. Never
   * rejects. A row that was returned as `undecided` may still be reported as sent.
   */
  handOver(
    rows: readonly Row[],
    report: (row: Row, outcome: RowOutcome) => void,
    epochs: ReadonlyMap<number, number>,
  ): Promise<Dispatched>;
  /** Resolves when every row that it took has its outcome. Without it, `handOver` resolves only then. */
  idle?(): Promise<void>;
  /** The outcome of this row has been committed. */
  stored?(row: Row): void;
  /** Another relay owns these lanes now: reports about their rows no longer count. */
  lost?(lanes: readonly number[]): void;
  /** Lanes that were lost recently while a consumer still handles rows of theirs. Other relays should take them. */
  lanesInUse?(): readonly number[];
}
