import { afterAll, describe } from "vitest";
import { handlerFacts } from "./library-suite/handler-facts.js";
import type { LibrarySuiteOptions } from "./library-suite/library-harness.js";
import { ownTransactionFacts } from "./library-suite/own-transaction-facts.js";
import { postgresStoreFeatures, postgresTestData } from "./postgres-store-harness.js";
import { appendFacts } from "./store-suite/append-facts.js";
import { inboxFacts } from "./store-suite/inbox-facts.js";
import { keptFacts } from "./store-suite/kept-facts.js";
import { scheduleFacts } from "./store-suite/schedule-facts.js";
import { scheduleKeyFacts } from "./store-suite/schedule-key-facts.js";
import { storeFacts } from "./store-suite/store-facts.js";
import { strictOrderFacts } from "./store-suite/strict-order-facts.js";
import { transactionFacts } from "./store-suite/transaction-facts.js";

/**
 * Proves that a store works in the transactions of a library on PostgreSQL: those that its user opens, and those that
 * the store opens for a handler. Everything else is the same for all libraries; `storeSuite` proves that.
 *
 * @example
 * ```ts
 * librarySuite(mine);
 * ```
 */
export function librarySuite<Tx>(library: LibrarySuiteOptions<Tx>): void {
  const { name, connect, transactions, impostors } = library;
  const data = postgresTestData({ connect, transactions, impostors });
  const features = { ...postgresStoreFeatures, processes: false };
  const options = { name, features, create: data.create };
  const fact = storeFacts(options);
  describe(`a store with ${name}`, () => {
    ownTransactionFacts(fact, library, data);
    handlerFacts(fact, library, data.schema);
    transactionFacts(fact, options);
    appendFacts(fact);
    scheduleFacts(fact);
    scheduleKeyFacts(fact);
    strictOrderFacts(fact);
    inboxFacts(fact);
    keptFacts(fact);
    afterAll(data.drop);
  });
}
