import { afterAll, describe } from "vitest";
import { type MysqlLibrarySuiteOptions, mysqlLibraryFacts } from "./library-suite/mysql-library-facts.js";
import { mysqlStoreFeatures, mysqlTestData } from "./mysql-store-harness.js";
import { appendFacts } from "./store-suite/append-facts.js";
import { inboxFacts } from "./store-suite/inbox-facts.js";
import { keptFacts } from "./store-suite/kept-facts.js";
import { scheduleFacts } from "./store-suite/schedule-facts.js";
import { scheduleKeyFacts } from "./store-suite/schedule-key-facts.js";
import { storeFacts } from "./store-suite/store-facts.js";
import { strictOrderFacts } from "./store-suite/strict-order-facts.js";
import { tickFacts } from "./store-suite/tick-facts.js";
import { transactionFacts } from "./store-suite/transaction-facts.js";

export type { MysqlLibrarySuiteOptions } from "./library-suite/mysql-library-facts.js";

/**
 * Proves that a store works in the transactions of a library on MySQL: those that its user opens, and those that the
 * store opens for a handler. Everything else is the same for all libraries; `storeSuite` proves that.
 *
 * @example
 * ```ts
 * mysqlLibrarySuite(onMysql);
 * ```
 */
export function mysqlLibrarySuite<Tx>(library: MysqlLibrarySuiteOptions<Tx>): void {
  const { name } = library;
  const data = mysqlTestData(library);
  const options = { name, features: { ...mysqlStoreFeatures, processes: false }, create: data.create };
  const fact = storeFacts(options);
  describe(`a store with ${name} on MySQL`, () => {
    mysqlLibraryFacts(fact, library, data.database);
    transactionFacts(fact, options);
    appendFacts(fact);
    scheduleFacts(fact);
    scheduleKeyFacts(fact);
    strictOrderFacts(fact);
    inboxFacts(fact);
    keptFacts(fact);
    tickFacts(fact);
    afterAll(data.drop);
  });
}
