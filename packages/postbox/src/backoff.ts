import { ConfigError } from "./errors.js";
import { answered } from "./internal/answer.js";
import { longestTimerMs } from "./internal/runtime.js";
import { checkOptions, type OptionRule, positive } from "./options.js";

const number: OptionRule = { expected: "a number", test: (value) => Number.isFinite(value) };

/**
 * The delay after the failed attempt number `attempt`, counted from 1, in milliseconds. `random` returns numbers in [0,
 * 1); it is a parameter so that a delay can be replayed.
 */
export type Backoff = (attempt: number, random: () => number) => number;

export interface ExponentialOptions {
  /** The delay after the first failure. Defaults to 200. */
  readonly initialMs?: number;
  /** The longest delay, including jitter. Defaults to 60,000. */
  readonly maxMs?: number;
  /** The ratio of each delay to the one before. Defaults to 2. */
  readonly factor?: number;
  /** The share of the delay that is random, 0 to 1. Defaults to 0.5. */
  readonly jitter?: number;
}

/**
 * Growing delays with jitter *inside* the cap, so that clients which failed together do not retry together.
 *
 * @example
 * ```ts
 * const relay = createRelay(store, sender, { backoff: exponential({ initialMs: 100, maxMs: 60_000 }) });
 * ```
 */
export function exponential(options: ExponentialOptions = {}): Backoff {
  checkOptions("exponential", options, { initialMs: positive, maxMs: positive, factor: number, jitter: number });
  const { initialMs = 200, maxMs = 60_000, factor = 2, jitter = 0.5 } = options;
  if (!(maxMs >= initialMs && factor >= 1 && jitter >= 0 && jitter <= 1)) {
    throw new ConfigError(
      "option-invalid",
      `exponential: needs maxMs (${maxMs}) >= initialMs (${initialMs}), factor (${factor}) >= 1 and jitter ` +
        `(${jitter}) from 0 to 1`,
    );
  }
  return (attempt, random) => {
    const full = Math.min(initialMs * factor ** (attempt - 1), maxMs);
    return Math.round(full * (1 - jitter * random()));
  };
}

/**
 * The same delay every time.
 *
 * @example
 * ```ts
 * const relay = createRelay(store, sender, { backoff: constant(5_000) });
 * ```
 */
export function constant(ms: number): Backoff {
  if (!(Number.isFinite(ms) && ms >= 0)) {
    throw new ConfigError("option-invalid", `constant: the delay must be a number of 0 or more; got ${ms}`);
  }
  return () => ms;
}

/**
 * The delay for something that has waited for `waitedMs`, if its attempts are not counted: the one that doubling delays
 * would have reached by then.
 */
export function delayAfter(backoff: Backoff, waitedMs: number, random: () => number): number {
  const firstMs = Math.max(
    1,
    backoff(1, () => 0),
  );
  return backoff(1 + Math.floor(Math.log2(1 + Math.max(0, waitedMs) / firstMs)), random);
}

/**
 * Guards a user's function: if it throws or returns no number, the delay is a second, and this is reported. No delay
 * exceeds the 25 days that a timer can hold, so that no database or broker gets a time that it cannot store.
 */
export function reliable(backoff: Backoff, report: (error: unknown) => void): Backoff {
  return (attempt, random) => {
    try {
      const ms = answered(backoff(attempt, random));
      if (Number.isFinite(ms) && ms >= 0) return Math.min(ms, longestTimerMs);
      report(new ConfigError("option-invalid", `backoff(${attempt}) answered ${ms}; answer milliseconds, 0 or more`));
    } catch (error) {
      report(error);
    }
    return 1000;
  };
}
