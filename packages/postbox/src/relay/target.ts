import type { PostboxError } from "../errors.js";
import type { Row } from "../store.js";
import type { Outcome } from "../transport.js";

/** What a sender says of a message; where it goes to something unavailable, with the time until that is tried again. */
export type SendOutcome =
  | Exclude<Outcome, { readonly status: "unavailable" }>
  | { readonly status: "unavailable"; readonly error: Error; readonly retryInMs: number };

/** What became of a row: also that it was given back untried, or that it was handled, and has left the box by that. */
export type RowOutcome = SendOutcome | { readonly status: "released" } | { readonly status: "handled" };

export interface Dispatched {
  /** Without an outcome, since the transport went down: they may or may not have arrived. */
  readonly undecided: readonly Row[];
  readonly down?: PostboxError;
  /** Whether a connection that stood was lost with them; an outage and a timeout are not that. */
  readonly died?: boolean;
}

/** Takes rows out of an engine and says what became of each: towards a sender (`dispatch`), or a consumer (`source`). */
export interface Target {
  readonly name: string;
  /** As of a Sender: whether several rows of one key may be with it at once. */
  readonly keepsOrder: boolean;
  /** Whether it takes one row at a time, the next when `handOver` has resolved. */
  readonly oneByOne: boolean;
  /** How many rows it takes at once for now. */
  most(): number;
  connect?(signal: AbortSignal): Promise<void>;
  /** The outcome of a row that it need not be given, since what that goes to is unavailable. */
  refuses?(row: Row): SendOutcome | undefined;
  /**
   * Reports each row once, as soon as its outcome is known; with `idle`, that may be after this has resolved. Never rejects. A row that
   * was answered as undecided may still be reported as sent.
   */
  handOver(
    rows: readonly Row[],
    report: (row: Row, outcome: RowOutcome) => void,
    epochs: ReadonlyMap<number, number>,
  ): Promise<Dispatched>;
  /** Resolves when nothing that it took lacks its outcome. Without it, `handOver` resolves only then. */
  idle?(): Promise<void>;
  /** What became of this row is committed. */
  stored?(row: Row): void;
  /** These lanes are somebody else's: nothing that is reported of their rows counts any more. */
  lost?(lanes: readonly number[]): void;
  /** The lanes that were lost lately while rows of theirs were with a consumer, which still has them: better with others. */
  lanesInUse?(): readonly number[];
}
