/** The rules that a history can violate. The names are stable. */
export type Rule =
  | "lost"
  | "undrained"
  | "ghost"
  | "misplaced"
  | "twice"
  | "unhandled"
  | "order"
  | "effect-order"
  | "duplicate"
  | "stale-write"
  | "altered"
  | "unstable-id"
  | "open-end";

/** A promise that a history breaks, with the events that show it. */
export interface Violation {
  readonly rule: Rule;
  readonly text: string;
  readonly ids: readonly string[];
  /** The index of the event where it shows; the history's length for something missing at its end. */
  readonly at: number;
}
