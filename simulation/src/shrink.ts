import type { Plan } from "./plan.js";
import { simulate } from "./simulate.js";

type Play = (plan: Plan) => Promise<{ readonly violations: readonly { readonly rule: string }[] }>;

/**
 * Returns a smaller plan that breaks the same rule. It is not always the smallest: the search ends when no single part
 * can be removed, or after `most` histories.
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
  /** Removes halves, then quarters, and at last single elements. */
  const thinOut = async <K extends "faults" | "transactions" | "operations">(part: K): Promise<void> => {
    for (let size = Math.ceil(best[part].length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
      for (let from = 0; from < best[part].length; ) {
        const rest = best[part].filter((_, index) => index < from || index >= from + size);
        if (!(await stillBreaks({ ...best, [part]: rest }))) from += size;
      }
    }
  };
  const simpler = (): readonly Partial<Plan>[] => [
    { secondHop: false },
    { hint: false },
    { strictKeyOrder: false },
    { consumers: 1 },
    ...[1, 2].filter((relays) => relays < best.relays).map((relays) => ({ relays })),
    { keepsOrder: true },
    { relay: { ...plan.relay, onSent: "delete" } },
    { handler: { ms: 0, concurrency: 1 } },
  ];
  const withCalls = (at: number, calls: Plan["transactions"][0]["calls"]): Plan => {
    const transactions = best.transactions.map((one, index) => (index === at ? { ...one, calls } : one));
    return { ...best, transactions };
  };
  /** Removes one message after the other. */
  const shorten = async (at: number): Promise<void> => {
    for (let call = 0; call < (best.transactions[at]?.calls.length ?? 0); call++) {
      for (let index = 0; ; ) {
        const calls = best.transactions[at]?.calls ?? [];
        const keys = calls[call];
        if (keys === undefined || index >= keys.length || calls.flat().length === 1) break;
        const fewer = calls.map((one, other) => (other === call ? one.filter((_, nth) => nth !== index) : one));
        if (
          !(await stillBreaks(
            withCalls(
              at,
              fewer.filter((one) => one.length > 0),
            ),
          ))
        )
          index++;
      }
    }
  };
  for (let before = -1; before !== best.faults.length + best.transactions.length && left > 0; ) {
    before = best.faults.length + best.transactions.length;
    await thinOut("faults");
    await thinOut("operations");
    await thinOut("transactions");
    for (const change of simpler()) await stillBreaks({ ...best, ...change });
    for (let at = 0; at < best.transactions.length; at++) await shorten(at);
  }
  return best;
}
