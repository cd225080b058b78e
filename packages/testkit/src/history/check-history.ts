import type { HistoryEvent, Promises } from "./history.js";
import { completeness } from "./rules/completeness.js";
import { duplicates } from "./rules/duplicates.js";
import { missingEffects, repeatedEffects } from "./rules/effects.js";
import { fence } from "./rules/fence.js";
import { acceptanceOrder, effectOrder } from "./rules/order.js";
import { alterations, ghosts, sharedIds } from "./rules/origin.js";
import { rest } from "./rules/rest.js";
import { type TracedHistory, traceHistory } from "./trace-history.js";
import type { Rule, Violation } from "./violation.js";

export type { Rule, Violation };

const checks: readonly ((traced: TracedHistory) => Iterable<Violation>)[] = [
  completeness,
  fence,
  ghosts,
  alterations,
  sharedIds,
  acceptanceOrder,
  effectOrder,
  duplicates,
  repeatedEffects,
  missingEffects,
  rest,
];

/** One fault often shows a thousand times. */
const maxPerRule = 10;

/**
 * Checks a history against the promises. Returns the violations, the earliest first, at most ten of each rule; none for
 * a sound history.
 *
 * @example
 * ```ts
 * const violations = checkHistory(history, { boxes: [] });
 * expect(violations).toEqual([]);
 * ```
 */
export function checkHistory(history: readonly HistoryEvent[], promises: Promises): readonly Violation[] {
  const traced = traceHistory(history, promises);
  const found: Violation[] = [];
  for (const check of checks) for (const violation of check(traced)) found.push(violation);
  const told = new Map<Rule, number>();
  return found
    .sort((a, b) => a.at - b.at)
    .filter(({ rule }) => {
      const count = (told.get(rule) ?? 0) + 1;
      told.set(rule, count);
      return count <= maxPerRule;
    });
}
