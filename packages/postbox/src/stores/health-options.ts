import type { HealthOptions } from "../health.js";
import { longestTimerMs } from "../internal/runtime.js";
import type { OptionRule } from "../options.js";
import { boxRules, centuryMs, checked, wholeUpTo } from "./admin-options.js";

/** The options of `health`, checked and with their defaults. */
export type CheckedHealth = Required<Omit<HealthOptions, "box">> & Pick<HealthOptions, "box">;

/** The rule of a time limit. */
export const age: OptionRule = {
  expected: "a number of milliseconds from 0 to a hundred years",
  test: (value) => typeof value === "number" && value >= 0 && value <= centuryMs,
};

const rules = {
  ...boxRules,
  unsentAgeMs: age,
  retriedForMs: age,
  parked: wholeUpTo(1_000_000, 0),
  timeoutMs: wholeUpTo(longestTimerMs),
};

/**
 * `own` are the rules of limits that only this store has.
 *
 * @example
 * ```ts
 * const limits = checkHealth({ unsentAgeMs: 10_000 });
 * ```
 */
export function checkHealth<O extends HealthOptions>(
  options: O = {} as O,
  own: Readonly<Record<string, OptionRule>> = {},
): CheckedHealth & Omit<O, keyof HealthOptions> {
  return {
    unsentAgeMs: 60_000,
    retriedForMs: 900_000,
    parked: 0,
    timeoutMs: 5000,
    ...checked<O>("store.health", options, { ...rules, ...own }),
  };
}
