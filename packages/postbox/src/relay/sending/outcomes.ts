import type { Row, Settlement } from "../../store.js";
import type { DrainContext } from "../context.js";
import { type Decision, decide, holdsNothingBack, queueBehind, sentEvent } from "../deciding/decide.js";
import type { Doubt } from "../isolation/suspicion.js";
import type { Window } from "../ordering/window.js";
import type { OrderedSettling } from "../settling/ordered-settling.js";
import type { RowOutcome, Target } from "../target.js";

export interface OutcomesOptions {
  readonly window: Window;
  readonly settling: OrderedSettling;
  readonly doubt: Doubt;
  readonly target: Pick<Target, "stored">;
  readonly context: DrainContext;
  /** A row has failed in its place. In `inMs`, it is read again, with all rows behind it. */
  readAgain(row: Row, inMs: number): void;
  /** A waiting row is due in `ms`. */
  dueIn(ms: number): void;
  /** There may be rows to send, or room for more. */
  changed(): void;
}

/** Turns what a target reports of each row into what is stored of it. */
export class Outcomes {
  readonly #options: OutcomesOptions;

  constructor(options: OutcomesOptions) {
    this.#options = options;
  }

  /** A target reports the outcome of a row. */
  report(row: Row, outcome: RowOutcome): void {
    const { window, settling, doubt, context, changed } = this.#options;
    if (!window.isOnItsWay(row)) {
      // A confirmation that arrived after its timeout. If this relay still has the row, it need not send it again.
      if (outcome.status !== "sent" || !window.sentAfterAll(row)) return;
      settling.add([decide(row, outcome, undefined, context)]);
      doubt.sent();
    } else if (outcome.status === "sent") {
      // The fast path: nearly every row is sent, and needs none of what a failure needs.
      window.sent(row);
      settling.sent(row);
      doubt.sent();
      changed();
    } else if (outcome.status === "released") {
      this.unknown([row], false);
      changed();
    } else if (outcome.status === "handled") {
      this.#handled(row);
    } else {
      const ahead = window.ahead(row);
      const decision = decide(row, outcome, ahead, context);
      settling.add(this.#becomes(decision, ahead, holdsNothingBack(row, outcome)));
      settling.landed(row);
      changed();
    }
  }

  /** Applies a decision to the window. Returns it, with the decisions about rows that have to follow. */
  #becomes(decision: Decision, ahead: "held" | "parked" | undefined, alone: boolean): readonly Decision[] {
    const { window, context, readAgain } = this.#options;
    const { settlement, againInMs } = decision;
    const { row } = settlement;
    if (settlement.to === "wait" || settlement.to === "pending" || (settlement.to === "parked" && settlement.hold)) {
      const behind = window.failed(row);
      if (againInMs !== undefined) readAgain(row, againInMs);
      if (behind.length > 0) return [decision, ...behind.map((other) => queueBehind(other, ahead ?? "held", context))];
    } else window.parked(row, alone);
    return [decision];
  }

  /** The handler has already removed the row from the box. */
  #handled(row: Row): void {
    const { window, doubt, context } = this.#options;
    window.sent(row);
    doubt.sent();
    this.stored({ settlement: { row, to: "sent" } });
    context.telemetry(sentEvent(row, context.boxName));
  }

  /** These rows were read, and their key is held. */
  held(rows: readonly Row[]): void {
    if (rows.length > 0) this.#options.settling.add(rows.map((row) => queueBehind(row, "held", this.#options.context)));
  }

  /** The target does not know the outcome of these rows. `died`: because an established connection was lost. */
  unknown(rows: readonly Row[], died: boolean): void {
    const { window, settling, doubt } = this.#options;
    const unknown = rows.filter((row) => window.isOnItsWay(row));
    this.held(window.undecided(unknown, died && doubt.died(unknown)));
    for (const row of unknown) settling.landed(row);
  }

  /** The outcome of a row has committed. */
  stored({ settlement }: Pick<Decision, "settlement">): void {
    const { window, target, dueIn, changed } = this.#options;
    const { row } = settlement;
    window.settled(row, placeOf(settlement));
    target.stored?.(row);
    if (settlement.to === "wait" && settlement.retryInMs !== undefined) dueIn(settlement.retryInMs);
    // The next rows that wait behind it can be read now.
    else if (row.waiting) dueIn(0);
    changed();
  }
}

/** A parked row that holds its key stops the key, as a waiting row does. */
function placeOf(settlement: Settlement): Settlement["to"] {
  return settlement.to === "parked" && settlement.hold === true ? "wait" : settlement.to;
}
