import { describe } from "vitest";
import { afterCommitFacts } from "./store-suite/after-commit-facts.js";
import { appendFacts } from "./store-suite/append-facts.js";
import { changingFacts } from "./store-suite/changing-facts.js";
import { healthFacts } from "./store-suite/health-facts.js";
import { holdingFacts } from "./store-suite/holding-facts.js";
import { hostileInputFacts } from "./store-suite/hostile-input-facts.js";
import { inboxFacts } from "./store-suite/inbox-facts.js";
import { keptFacts } from "./store-suite/kept-facts.js";
import { lookingFacts } from "./store-suite/looking-facts.js";
import { migrationFacts } from "./store-suite/migration-facts.js";
import { ownershipFacts } from "./store-suite/ownership-facts.js";
import { retentionFacts } from "./store-suite/retention-facts.js";
import { scheduleFacts } from "./store-suite/schedule-facts.js";
import { scheduleKeyFacts } from "./store-suite/schedule-key-facts.js";
import { settleHistoryFacts } from "./store-suite/settle-history-facts.js";
import { settlingFacts } from "./store-suite/settling-facts.js";
import { storeFacts } from "./store-suite/store-facts.js";
import type { StoreSuiteOptions } from "./store-suite/store-harness.js";
import { strictOrderFacts } from "./store-suite/strict-order-facts.js";
import { tickFacts } from "./store-suite/tick-facts.js";
import { transactionFacts } from "./store-suite/transaction-facts.js";

/**
 * Proves that a store keeps the contract of `store.ts`. Call it from a Vitest file; each fact gets a harness of its
 * own.
 *
 * @example
 * ```ts
 * storeSuite({ name: "mine", features, create: async () => harness });
 * ```
 */
export function storeSuite<Tx>(options: StoreSuiteOptions<Tx>): void {
  const fact = storeFacts(options);
  describe(`${options.name} as a store`, () => {
    transactionFacts(fact, options);
    appendFacts(fact);
    strictOrderFacts(fact);
    settlingFacts(fact);
    settleHistoryFacts(fact);
    holdingFacts(fact);
    ownershipFacts(fact);
    inboxFacts(fact);
    keptFacts(fact);
    afterCommitFacts(fact);
    lookingFacts(fact);
    changingFacts(fact);
    hostileInputFacts(fact);
    healthFacts(fact);
    retentionFacts(fact);
    scheduleFacts(fact);
    scheduleKeyFacts(fact);
    tickFacts(fact);
    migrationFacts(fact);
  });
}
