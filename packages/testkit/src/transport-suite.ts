import { describe } from "vitest";
import { failingBrokerFacts } from "./transport-suite/failing-broker-facts.js";
import { groupRouterFacts } from "./transport-suite/group-router-facts.js";
import { passwordFacts } from "./transport-suite/password-facts.js";
import { receivingFacts } from "./transport-suite/receiving-facts.js";
import { roundTripFacts } from "./transport-suite/round-trip-facts.js";
import { routedFacts } from "./transport-suite/routed-facts.js";
import { scopeFacts } from "./transport-suite/scope-facts.js";
import { sendingFacts } from "./transport-suite/sending-facts.js";
import { settlementFacts } from "./transport-suite/settlement-facts.js";
import { streamFacts } from "./transport-suite/stream-facts.js";
import { transportFacts } from "./transport-suite/transport-facts.js";
import type { TransportSuiteOptions } from "./transport-suite/transport-harness.js";

/**
 * Proves that a transport keeps the contract of `transport.ts`. Call it from a Vitest file. Topics and queues are new
 * for each fact, so the broker may be shared.
 *
 * @example
 * ```ts
 * transportSuite({ name: "memory", features: memoryTransportFeatures, create: memoryTransportHarness });
 * ```
 */
export function transportSuite(options: TransportSuiteOptions): void {
  const fact = transportFacts(options);
  describe(`${options.name} as a transport`, () => {
    sendingFacts(fact);
    roundTripFacts(fact);
    settlementFacts(fact);
    receivingFacts(fact);
    failingBrokerFacts(fact);
    passwordFacts(fact);
    routedFacts(fact);
    streamFacts(fact);
    scopeFacts(fact);
    groupRouterFacts(fact);
  });
}
