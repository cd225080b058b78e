import { describe } from "vitest";
import { durableFacts } from "./inbox-suite/durable-facts.js";
import { handlingFacts } from "./inbox-suite/handling-facts.js";
import { storeFacts } from "./store-suite/store-facts.js";
import type { StoreSuiteOptions } from "./store-suite/store-harness.js";

/**
 * Proves that consumers with an inbox on this store handle each message once, in both modes. Call it from a Vitest
 * file, with the options of `storeSuite`.
 *
 * @example
 * ```ts
 * inboxSuite({ name: "mine", features, create: async () => harness });
 * ```
 */
export function inboxSuite<Tx>(options: StoreSuiteOptions<Tx>): void {
  const fact = storeFacts(options);
  describe(`an inbox on ${options.name}`, () => {
    for (const mode of ["inbox", "durableInbox"] as const) handlingFacts(fact, mode);
    durableFacts(fact);
  });
}
