import type { Row, Settlement } from "../store.js";
import type { Judgement } from "./judge.js";
import type { Settler } from "./settler.js";
import type { Window } from "./window.js";

/**
 * Gives judgements to a settler, but none that holds a key while an earlier row of that key is on its way, which only a sender that
 * keeps order has: outcomes come in any order. A successor would find the later row in `wait` and the earlier one still pending, and
 * send the later one first.
 */
export interface OrderedSettling {
  add(judgements: readonly Judgement[]): void;
  /** These are on their way no more, and what becomes of them was added: what had to wait for them is added too. */
  landed(rows: readonly Row[]): void;
  /** Forgets what was put off in a lane that is lost. */
  drop(lane: number): void;
}

export function createOrderedSettling(
  settler: Pick<Settler, "add">,
  window: Pick<Window, "hasEarlierOnItsWay">,
): OrderedSettling {
  const putOff = new Map<string, Judgement[]>();

  const mustWait = ({ settlement }: Judgement) => holdsKey(settlement) && window.hasEarlierOnItsWay(settlement.row);

  function add(judgements: readonly Judgement[]): void {
    // Nearly always: each row that was sent comes here by itself.
    if (!judgements.some(mustWait)) {
      settler.add(judgements);
      return;
    }
    const now: Judgement[] = [];
    for (const judgement of judgements) {
      if (!mustWait(judgement)) {
        now.push(judgement);
        continue;
      }
      const key = judgement.settlement.row.message.key as string;
      const others = putOff.get(key);
      if (others === undefined) putOff.set(key, [judgement]);
      else others.push(judgement);
    }
    if (now.length > 0) settler.add(now);
  }

  return {
    add,
    landed(rows) {
      if (putOff.size === 0) return;
      for (const key of new Set(rows.map(({ message }) => message.key))) {
        const judgements = key === undefined ? undefined : putOff.get(key);
        if (judgements === undefined) continue;
        putOff.delete(key as string);
        add(judgements.sort((a, b) => a.settlement.row.position - b.settlement.row.position));
      }
    },
    drop(lane) {
      for (const [key, [first]] of putOff) if (first?.settlement.row.lane === lane) putOff.delete(key);
    },
  };
}

function holdsKey(settlement: Settlement): boolean {
  return settlement.to === "wait" || (settlement.to === "parked" && settlement.hold === true);
}
