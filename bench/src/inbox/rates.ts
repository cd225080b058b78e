import type { Run } from "../part.js";
import { alternate } from "../rounds.js";

/** Enough for the compiler to be done. */
const warmUpMessages = 2_000;

/**
 * The rates of all sides, round by round, after each has run once for nothing. A side is told how many messages to
 * take.
 */
export async function warmRates<Side extends string>(
  run: Run,
  messages: number,
  sides: Readonly<Record<Side, (count: number) => Promise<number>>>,
): Promise<Readonly<Record<Side, readonly number[]>>> {
  const each = Object.entries(sides) as [Side, (count: number) => Promise<number>][];
  for (const [, rate] of each) await rate(warmUpMessages);
  const measured = each.map(([side, rate]) => [side, () => rate(run.share(messages))] as const);
  return alternate(run.rounds, Object.fromEntries(measured) as Record<Side, () => Promise<number>>);
}
