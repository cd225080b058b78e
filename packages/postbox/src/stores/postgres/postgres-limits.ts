import { wholeUpTo } from "../admin-options.js";
import { age, type CheckedHealth, checkHealth } from "../health-options.js";
import type { PostgresHealthOptions } from "./postgres-problems.js";

/** All limits, those of every store and those of PostgreSQL only. */
export type CheckedLimits = CheckedHealth & Required<Omit<PostgresHealthOptions, keyof CheckedHealth>>;

const bytes = wholeUpTo(Number.MAX_SAFE_INTEGER, 0);
const rules = { transactionAgeMs: age, partitionsAheadMs: age, tableBytes: bytes, deadSpaceBytes: bytes };
const dayMs = 24 * 3_600_000;
const mebibyte = 1024 * 1024;

export function checkLimits(options: PostgresHealthOptions | undefined): CheckedLimits {
  return {
    transactionAgeMs: 300_000,
    partitionsAheadMs: dayMs,
    tableBytes: 10 * 1024 * mebibyte,
    deadSpaceBytes: 100 * mebibyte,
    ...checkHealth(options, rules),
  };
}
