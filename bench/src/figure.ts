import { median, ratios, spread } from "./statistics.js";

/** What a benchmark says under one name. */
export type Figure = Measured | Missing;

export interface Measured {
  readonly name: string;
  /** The median of our own side. */
  readonly value: number;
  readonly unit: string;
  /** The median of the rounds' ratios, ours to theirs; null where the figure is absolute. */
  readonly ratio: number | null;
  /** What it is compared with, and its median. */
  readonly against: string | null;
  readonly againstValue: number | null;
  readonly rounds: number;
  /** Least and greatest: of the ratios where there is one, else of the values. */
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
