/** The middle value; of an even number of values, the mean of the two in the middle. */
export function median(values: readonly number[]): number {
  const sorted = ascending(values);
  const half = sorted.length / 2;
  const upper = sorted[Math.floor(half)] as number;
  return Number.isInteger(half) ? ((sorted[half - 1] as number) + upper) / 2 : upper;
}

/** The least and the greatest value. */
export function spread(values: readonly number[]): readonly [number, number] {
  const sorted = ascending(values);
  return [sorted[0] as number, sorted[sorted.length - 1] as number];
}

/** The smallest value that at least `percent` of all values do not exceed (nearest rank, without interpolation). */
export function percentile(values: readonly number[], percent: number): number {
  const sorted = ascending(values);
  return sorted[Math.max(0, Math.ceil((percent / 100) * sorted.length) - 1)] as number;
}

/** One ratio per round, so that only values measured side by side are compared. */
export function ratios(ours: readonly number[], theirs: readonly number[]): readonly number[] {
  if (ours.length !== theirs.length) throw new Error(`${ours.length} rounds cannot be compared with ${theirs.length}`);
  return ours.map((value, round) => value / (theirs[round] as number));
}

function ascending(values: readonly number[]): readonly number[] {
  if (values.length === 0) throw new Error("nothing was measured");
  return [...values].sort((a, b) => a - b);
}
