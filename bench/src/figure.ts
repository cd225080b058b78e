import { median, ratios, spread } from "./statistics.js";

/** The result of a benchmark under one name. */
export type Figure = Measured | Missing;

export interface Measured {
  readonly name: string;
  /** The median of the library's side. */
  readonly value: number;
  readonly unit: string;
  /** The median of the per-round ratios, library to other side; null if the figure is absolute. */
  readonly ratio: number | null;
  /** What the library is compared with. Its median is `againstValue`. */
  readonly against: string | null;
  readonly againstValue: number | null;
  readonly rounds: number;
  /** The least and the greatest ratio, or value if the figure is absolute. */
  readonly spread: readonly [number, number];
}

export interface Missing {
  readonly name: string;
  readonly reason: string;
}

export function absolute(name: string, unit: string, values: readonly number[]): Measured {
  const common = { name, value: median(values), unit, rounds: values.length, spread: spread(values) };
  return { ...common, ratio: null, against: null, againstValue: null };
}

export function compared(
  name: string,
  unit: string,
  ours: readonly number[],
  against: string,
  theirs: readonly number[],
): Measured {
  const perRound = ratios(ours, theirs);
  return {
    name,
    value: median(ours),
    unit,
    ratio: median(perRound),
    against,
    againstValue: median(theirs),
    rounds: perRound.length,
    spread: spread(perRound),
  };
}

export function missing(name: string, reason: string): Missing {
  return { name, reason };
}
