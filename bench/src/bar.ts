import type { Measured } from "./figure.js";

/** The value that a figure must reach. */
export type Bar = { readonly atLeast: number } | { readonly atMost: number };

/**
 * Compares the median with the bar. "met" means that every round reached it, so that a lucky round does not pass for a
 * typical one. "just" means that the median reached it and at least one round did not.
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
