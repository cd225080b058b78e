import type { LaneRead, LaneRows, Row } from "../../store.js";

/** The part of a read that is accepted. */
export interface Admitted {
  readonly rows: readonly Row[];
  /** How many late commits were accepted into the window before these rows. */
  readonly late: number;
  /** Whether a lane may have more. */
  readonly more: boolean;
  /** Whether rows were found that must wait for earlier ones. */
  readonly blocked: boolean;
}

/** Decides what to read next beyond the cursors, and which of the rows found to accept. One read at a time. */
export interface Tips {
  /** Whether the window has no more room. */
  readonly isFull: boolean;
  /** Whether any lane can be read now. */
  readonly canRead: boolean;
  /** What the next read asks for. */
  next(): readonly LaneRead[];
  /** Accepts rows of the read that `next` asked for. If this rejects, `next` asks for the same again. */
  admit(found: LaneRows, signal: AbortSignal): Promise<Admitted>;
  /** Whether the last read left out lanes for which there is room now. Returns true only once. */
  hasRoomAgain(): boolean;
  /** The database went back to an earlier state: positions may belong to other messages now. */
  forget(): void;
}
