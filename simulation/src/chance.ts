/** Random numbers that depend on a seed alone. */
export interface Chance {
  /** A number in [0, 1). */
  next(): number;
  /** A number in [low, high). */
  between(low: number, high: number): number;
  /** A whole number from low to high, both included. */
  count(low: number, high: number): number;
  /** True with this probability. */
  is(probability: number): boolean;
  pick<T>(choices: readonly [T, ...T[]]): T;
  /** An independent generator for one part: what other parts draw does not change what this part draws. */
  fork(): Chance;
}

/** Makes a small, fast generator (sfc32), which passes the usual tests for randomness. */
export function createChance(seed: number): Chance {
  let [a, b, c, d] = [seed >>> 0, (seed / 0x100000000) >>> 0, 0x9e3779b9, 1];
  const next = (): number => {
    const sum = (a + b + d) | 0;
    d = (d + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = ((c << 21) | (c >>> 11)) + sum;
    return (sum >>> 0) / 0x100000000;
  };
  // Similar seeds produce similar numbers at first, so the first 15 are skipped.
  for (let turn = 0; turn < 15; turn++) next();
  const chance: Chance = {
    next,
    between: (low, high) => low + next() * (high - low),
    count: (low, high) => low + Math.floor(next() * (high - low + 1)),
    is: (probability) => next() < probability,
    pick: (choices) => choices[Math.floor(next() * choices.length)] as (typeof choices)[0],
    fork: () => createChance(Math.floor(next() * Number.MAX_SAFE_INTEGER)),
  };
  return chance;
}
