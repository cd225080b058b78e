import type { Run } from "../part.js";
import { alternate } from "../rounds.js";

/** Enough messages for the JIT compiler to finish. */
const warmUpMessages = 2_000;

/**
 * Warms up each side with 2,000 messages, then returns the rates of all sides, round by round. Each side receives the
 * number of messages to handle.
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
