import type { HealthOptions } from "../health.js";
import { longestTimerMs } from "../internal/runtime.js";
import type { OptionRule } from "../options.js";
import { boxRules, centuryMs, checked, wholeUpTo } from "./admin-options.js";

export type CheckedHealth = Required<Omit<HealthOptions, "box">> & Pick<HealthOptions, "box">;

const dayMs = 24 * 3_600_000;
const mebibyte = 1024 * 1024;

const age: OptionRule = {
  expected: "a number of milliseconds from 0 to a hundred years",
  test: (value) => typeof value === "number" && value >= 0 && value <= centuryMs,
};
const bytes = wholeUpTo(Number.MAX_SAFE_INTEGER, 0);

const rules = {
  ...boxRules,
  unsentAgeMs: age,
  retriedForMs: age,
  parked: wholeUpTo(1_000_000, 0),
  transactionAgeMs: age,
  partitionsAheadMs: age,
  tableBytes: bytes,
  deadSpaceBytes: bytes,
  timeoutMs: wholeUpTo(longestTimerMs),
};

export function checkHealth(options: HealthOptions = {}): CheckedHealth {
  return {
    unsentAgeMs: 60_000,
    retriedForMs: 900_000,
    parked: 0,
    transactionAgeMs: 300_000,
    partitionsAheadMs: dayMs,
    tableBytes: 10 * 1024 * mebibyte,
    deadSpaceBytes: 100 * mebibyte,
    timeoutMs: 5000,
    ...checked("store.health", options, rules),
  };
}
