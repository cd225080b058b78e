import type { OptionRule } from "../../options.js";

/** The rule of every `pool` option. */
export const poolRule: OptionRule = {
  expected: "a Pool of pg, without its option 'binary', which damages bytes",
  test: (value) =>
    ["connect", "query", "on", "listenerCount"].every(
      (method) => typeof (value as Record<string, unknown> | null)?.[method] === "function",
    ) && (value as { options?: { binary?: unknown } }).options?.binary !== true,
};
