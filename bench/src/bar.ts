import type { Measured } from "./figure.js";

/** What a figure has to reach. */
export type Bar = { readonly atLeast: number } | { readonly atMost: number };

/**
 * Whether the median reaches the bar. "met" only if every round did, so that a lucky one cannot pass for the usual one;
 * "just" when the median did and some round did not.
 */
export function verdict({ ratio, value, spread: [least, greatest] }: Measured, bar: Bar): "met" | "just" | "missed" {
  const middle = ratio ?? value;
  const reaches = (figure: number) => ("atLeast" in bar ? figure >= bar.atLeast : figure <= bar.atMost);
  if (!reaches(middle)) return "missed";
  return reaches(least) && reaches(greatest) ? "met" : "just";
}

export function barText(bar: Bar): string {
  return "atLeast" in bar ? `≥ ${bar.atLeast}` : `≤ ${bar.atMost}`;
}
