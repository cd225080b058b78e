/** Chance that a seed decides. */
export interface Chance {
  /** In [0, 1). */
  next(): number;
  /** In [low, high). */
  between(low: number, high: number): number;
  /** A whole number from low to high, both included. */
  count(low: number, high: number): number;
  /** True so often. */
  is(probability: number): boolean;
  pick<T>(choices: readonly [T, ...T[]]): T;
  /** Chance of its own for one part: what others draw does not change what it draws. */
  fork(): Chance;
}

/** Small fast counter (sfc32): passes the usual tests for randomness, and is quick. */
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
  // Seeds that differ little begin alike.
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
