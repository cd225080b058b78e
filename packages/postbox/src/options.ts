import { ConfigError } from "./errors.js";
import { scrub } from "./internal/scrub.js";

/** The rule of an option: a good value in words, for the error, and as a test. */
export interface OptionRule {
  readonly expected: string;
  /** Its values may contain a secret, so no error shows them. Defaults to false. */
  readonly secret?: boolean;
  test(value: unknown): boolean;
}

export const positive: OptionRule = {
  expected: "a number above 0",
  test: (value) => typeof value === "number" && Number.isFinite(value) && value > 0,
};
export const notNegative: OptionRule = {
  expected: "a number of 0 or more",
  test: (value) => typeof value === "number" && Number.isFinite(value) && value >= 0,
};
export const count: OptionRule = {
  expected: "a whole number of at least 1",
  test: (value) => Number.isSafeInteger(value) && (value as number) >= 1,
};
export const text: OptionRule = {
  expected: "a non-empty string",
  test: (value) => typeof value === "string" && value.length > 0,
};
export const callback: OptionRule = { expected: "a function", test: (value) => typeof value === "function" };
export const flag: OptionRule = { expected: "true or false", test: (value) => typeof value === "boolean" };
export const object: OptionRule = {
  expected: "an object",
  test: (value) => typeof value === "object" && value !== null && !Array.isArray(value),
};
export const signal: OptionRule = { expected: "an AbortSignal", test: (value) => value instanceof AbortSignal };
export const list: OptionRule = { expected: "an array", test: (value) => Array.isArray(value) };

export function oneOf(...values: readonly string[]): OptionRule {
  return {
    expected: values.map((value) => JSON.stringify(value)).join(" or "),
    test: (value) => values.includes(value as string),
  };
}

/**
 * Checks an options object once, where it is passed in: every key must have a rule, and every value must pass it. For
 * an unknown key, the error suggests the nearest known one, including the options `nested` in it.
 *
 * @example
 * ```ts
 * const text = { expected: "a text", test: (value: unknown) => typeof value === "string" };
 * checkOptions("myStore", { url: "my://localhost" }, { url: text }, ["url"]);
 * ```
 */
export function checkOptions(
  owner: string,
  options: object,
  rules: Readonly<Record<string, OptionRule>>,
  required: readonly string[] = [],
  nested: Readonly<Record<string, Readonly<Record<string, OptionRule>>>> = {},
): void {
  if (typeof options !== "object" || options === null) {
    throw new ConfigError("option-invalid", `${owner}: options must be an object; got ${show(options)}`);
  }
  // Not over its entries: some options are checked for every message.
  for (const key in options) {
    if (!Object.hasOwn(options, key)) continue;
    const value: unknown = (options as Record<string, unknown>)[key];
    const rule = Object.hasOwn(rules, key) ? rules[key] : undefined;
    if (rule === undefined) {
      const nearest = nearestName(key, Object.keys(rules)) ?? nearestNested(key, nested);
      const advice =
        nearest === undefined ? `known are ${Object.keys(rules).join(", ")}` : `did you mean '${nearest}'?`;
      throw new ConfigError("option-unknown", `${owner}: unknown option '${key}'; ${advice}`, { path: key });
    }
    if (value !== undefined && !rule.test(value)) {
      throw new ConfigError(
        "option-invalid",
        `${owner}: option '${key}' must be ${rule.expected}${rule.secret ? "" : `; got ${show(value)}`}`,
        {
          path: key,
        },
      );
    }
  }
  for (const key of required) {
    if ((options as Record<string, unknown>)[key] === undefined) {
      throw new ConfigError("option-invalid", `${owner}: option '${key}' is missing; give ${rules[key]?.expected}`, {
        path: key,
      });
    }
  }
}

function nearestNested(key: string, nested: Readonly<Record<string, object>>): string | undefined {
  for (const [owner, rules] of Object.entries(nested)) {
    const nearest = nearestName(key, Object.keys(rules));
    if (nearest !== undefined) return `${owner}.${nearest}`;
  }
  return undefined;
}

/** Merges two objects; where `b` leaves a field undefined, that of `a` stays. */
export function given<A extends object, B extends object>(a: A | undefined, b?: B): A & B {
  const values = [a, b].flatMap((each) => Object.entries(each ?? {}).filter(([, value]) => value !== undefined));
  return Object.fromEntries(values) as A & B;
}

function show(value: unknown): string {
  if (typeof value === "string") {
    // A URL in the wrong place may contain a password.
    const clean = scrub(value);
    return JSON.stringify(clean.length > 100 ? `${clean.slice(0, 100)}…` : clean);
  }
  return typeof value === "object" && value !== null ? Object.prototype.toString.call(value) : String(value);
}

/** The name among `known` that was most likely meant; undefined if none is similar. */
export function nearestName(name: string, known: readonly string[]): string | undefined {
  let best: string | undefined;
  let bestDistance = Math.max(2, Math.floor(name.length / 3)) + 1;
  for (const candidate of known) {
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase());
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance];
  }
  return best;
}

function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const swap = (row[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(swap, (row[j] as number) + 1, (next[j - 1] as number) + 1));
    }
    row = next;
  }
  return row[b.length] as number;
}
