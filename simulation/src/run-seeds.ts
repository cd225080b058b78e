import { type Failpoint, failpoints } from "postbox/store";
import { planOf } from "./plan.js";
import { simulate } from "./simulate.js";
import { type Situation, situations } from "./situations.js";

/** The totals of many histories. */
export interface Tally {
  histories: number;
  events: number;
  /** The seeds that broke a rule, each with the first rule that it broke. */
  readonly broken: { readonly seed: number; readonly rule: string; readonly text: string }[];
  readonly situations: Map<Situation, number>;
  readonly failpoints: Set<Failpoint>;
}

export function emptyTally(): Tally {
  return { histories: 0, events: 0, broken: [], situations: new Map(), failpoints: new Set() };
}

/** Plays these seeds one after the other, until `isEnough`. */
export async function runSeeds(
  seeds: Iterable<number>,
  isEnough: (tally: Tally) => boolean = () => false,
): Promise<Tally> {
  const tally = emptyTally();
  for (const seed of seeds) {
    const { violations, events, ...met } = await simulate(planOf(seed));
    tally.histories++;
    tally.events += events;
    const [first] = violations;
    if (first !== undefined) tally.broken.push({ seed, rule: first.rule, text: first.text });
    for (const [situation, count] of met.situations) add(tally.situations, situation, count);
    for (const failpoint of met.failpoints) tally.failpoints.add(failpoint);
    if (isEnough(tally)) break;
  }
  return tally;
}

/** Adds the totals of another run. */
export function merge(tally: Tally, other: Tally): void {
  tally.histories += other.histories;
  tally.events += other.events;
  tally.broken.push(...other.broken);
  for (const [situation, count] of other.situations) add(tally.situations, situation, count);
  for (const failpoint of other.failpoints) tally.failpoints.add(failpoint);
}

/** Returns the situations and failpoints that no history reached. */
export function unmet({ situations: met, failpoints: reached }: Tally): string[] {
  return [...situations.filter((one) => !met.has(one)), ...failpoints.filter((one) => !reached.has(one))];
}

function add(counts: Map<Situation, number>, situation: Situation, count: number): void {
  counts.set(situation, (counts.get(situation) ?? 0) + count);
}
