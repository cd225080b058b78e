import type { LaneRead, LaneRows, Row } from "../../store.js";

/** What goes on of what a read has found. */
export interface Admitted {
  readonly rows: readonly Row[];
  /** How many rows that had committed late went into the window before these. */
  readonly late: number;
  /** Whether some lane may have more. */
  readonly more: boolean;
  /** Whether rows were found that must wait for earlier ones. */
  readonly blocked: boolean;
}

/** Decides what to read next beyond what was read, and what of that goes on. One read at a time. */
export interface Tips {
  /** Whether the window has room for nothing more. */
  readonly isFull: boolean;
  /** Whether there are lanes that can be read now. */
  readonly canRead: boolean;
  /** What the next read asks for. */
  next(): readonly LaneRead[];
  /** What goes on of what `next` asked for. If this rejects, the same is asked for again. */
  admit(found: LaneRows, signal: AbortSignal): Promise<Admitted>;
  /** Whether lanes were left out of the last read for which there is room by now. Answers true once. */
  hasRoomAgain(): boolean;
  /** The database went back to an earlier state: positions mean other messages now. */
  forget(): void;
}
