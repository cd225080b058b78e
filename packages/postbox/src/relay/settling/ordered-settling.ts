import { insertAscending } from "../../internal/ascending.js";
import type { Row, Settlement } from "../../store.js";
import type { Decision } from "../deciding/decide.js";
import type { Window } from "../ordering/window.js";
import type { Settler } from "./settler.js";

/**
 * Passes decisions to a settler, but defers those that hold a key while an earlier row of the key is in flight. Only a
 * sender that keeps order has such rows, and it reports outcomes in any order. After a crash, the next owner would find
 * the later row in `wait` and the earlier one still in `pending`, and send the later one first.
 */
export interface OrderedSettling {
  add(decisions: readonly Decision[]): void;
  /** This row was sent and has landed. Passes on that, and the decisions that waited for it. */
  sent(row: Row): void;
  /** This row has landed and its decision was added. Passes on the decisions that waited for it. */
  landed(row: Row): void;
  /** Forgets the deferred decisions of a lost lane. */
  drop(lane: number): void;
}

export function createOrderedSettling(
  settler: Pick<Settler, "add" | "sent">,
  window: Pick<Window, "hasEarlierOnItsWay">,
): OrderedSettling {
  /** By key, ascending by position: if the first decision has to wait, all do. */
  const putOff = new Map<string, Decision[]>();

  const mustWait = ({ settlement }: Decision) => holdsKey(settlement) && window.hasEarlierOnItsWay(settlement.row);

  function add(decisions: readonly Decision[]): void {
    if (!decisions.some(mustWait)) {
      settler.add(decisions);
      return;
    }
    const now: Decision[] = [];
    for (const decision of decisions) {
      if (!mustWait(decision)) {
        now.push(decision);
        continue;
      }
      const key = decision.settlement.row.message.key as string;
      const others = putOff.get(key) ?? [];
      putOff.set(key, others);
      insertAscending(others, decision, positionOf);
    }
    if (now.length > 0) settler.add(now);
  }

  function landed({ message: { key } }: Row): void {
    if (putOff.size === 0 || key === undefined) return;
    const decisions = putOff.get(key);
    if (decisions === undefined) return;
    const waiting = decisions.findIndex(mustWait);
    if (waiting === 0) return;
    settler.add(waiting < 0 ? decisions : decisions.splice(0, waiting));
    if (waiting < 0) putOff.delete(key);
  }

  return {
    add,
    landed,
    sent(row) {
      settler.sent(row);
      landed(row);
    },
    drop(lane) {
      for (const [key, [first]] of putOff) if (first?.settlement.row.lane === lane) putOff.delete(key);
    },
  };
}

function positionOf({ settlement }: Decision): number {
  return settlement.row.position;
}

function holdsKey(settlement: Settlement): boolean {
  return settlement.to === "wait" || (settlement.to === "parked" && settlement.hold === true);
}
