import { describe } from "vitest";
import { chaosFacts } from "./relay-suite/chaos-facts.js";
import { failureFacts } from "./relay-suite/failure-facts.js";
import { operatingFacts } from "./relay-suite/operating-facts.js";
import { operatorSoakFacts } from "./relay-suite/operator-soak-facts.js";
import { orderFacts } from "./relay-suite/order-facts.js";
import { scopeFacts } from "./relay-suite/scope-facts.js";
import { sendingFacts } from "./relay-suite/sending-facts.js";
import { sourceFacts } from "./relay-suite/source-facts.js";
import { suspectFacts } from "./relay-suite/suspect-facts.js";
import { takeOverFacts } from "./relay-suite/take-over-facts.js";
import { storeFacts } from "./store-suite/store-facts.js";
import type { StoreSuiteOptions } from "./store-suite/store-harness.js";

/**
 * Proves that a relay on this store keeps its promises: it sends everything that is committed and nothing else, in
 * order per key, through refusals, outages and take-overs. Call it from a Vitest file, with the options of
 * `storeSuite`.
 *
 * @example
 * ```ts
 * relaySuite({ name: "mine", features, create: async () => harness });
 * ```
 */
export function relaySuite<Tx>(options: StoreSuiteOptions<Tx>): void {
  const fact = storeFacts(options);
  describe(`a relay on ${options.name}`, () => {
    sendingFacts(fact);
    failureFacts(fact);
    scopeFacts(fact);
    orderFacts(fact);
    takeOverFacts(fact);
    suspectFacts(fact);
    operatingFacts(fact);
    operatorSoakFacts(fact);
    sourceFacts(fact);
    chaosFacts(fact);
  });
}
