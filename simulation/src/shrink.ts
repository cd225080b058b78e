import type { Plan } from "./plan.js";
import { simulate } from "./simulate.js";

type Play = (plan: Plan) => Promise<{ readonly violations: readonly { readonly rule: string }[] }>;

/**
 * A smaller plan that breaks the same rule: without what it can do without. Nobody promises the smallest; it is what is left
 * when taking away any one more makes the violation vanish, or when `most` histories were played.
 */
export async function shrink(plan: Plan, rule: string, most = 400, play: Play = simulate): Promise<Plan> {
  let [best, left] = [plan, most];
  const stillBreaks = async (candidate: Plan): Promise<boolean> => {
    if (left-- <= 0) return false;
    const { violations } = await play(candidate);
    if (!violations.some((violation) => violation.rule === rule)) return false;
    best = candidate;
    return true;
  };
  /** Takes away halves, then quarters, and at last single ones. */
  const thinOut = async <K extends "faults" | "transactions">(part: K): Promise<void> => {
    for (let size = Math.ceil(best[part].length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
      for (let from = 0; from < best[part].length; ) {
        const rest = best[part].filter((_, index) => index < from || index >= from + size);
        if (!(await stillBreaks({ ...best, [part]: rest }))) from += size;
      }
    }
  };
  const simpler: readonly Partial<Plan>[] = [
    { secondHop: false },
    { hint: false },
    { strictKeyOrder: false },
    { consumers: 1 },
    { relays: 1 },
    { relays: 2 },
    { keepsOrder: true },
    { relay: { ...plan.relay, mode: "delete" } },
    { handler: { ms: 0, concurrency: 1 } },
  ];
  for (let before = -1; before !== best.faults.length + best.transactions.length && left > 0; ) {
    before = best.faults.length + best.transactions.length;
    await thinOut("faults");
    await thinOut("transactions");
    for (const change of simpler) await stillBreaks({ ...best, ...change });
    for (const [index, { calls }] of best.transactions.entries()) {
      if (calls.flat().length < 2) continue;
      const transactions = best.transactions.map((one, at) =>
        at === index ? { ...one, calls: [calls.flat().slice(0, 1)] } : one,
      );
      await stillBreaks({ ...best, transactions });
    }
  }
  return best;
}
