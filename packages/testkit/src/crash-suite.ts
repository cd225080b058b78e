import { type Failpoint, failpoints } from "postbox/store";
import { describe, expect } from "vitest";
import { crashRun, expectNothingLost, type InboxMode, roleOf } from "./crash-suite/crash-run.js";
import { storeFacts } from "./store-suite/store-facts.js";
import type { StoreSuiteOptions } from "./store-suite/store-harness.js";

/**
 * Kills a producer, a relay or a consumer at every failpoint, once on its first and once on a later hit, and starts a
 * replacement. Proves that no message is lost and no effect is repeated. Needs the feature `processes`.
 *
 * @example
 * ```ts
 * crashSuite({ name: "mine", features, create: async () => harness });
 * ```
 */
export function crashSuite<Tx>(options: StoreSuiteOptions<Tx>): void {
  const fact = storeFacts(options);
  describe(`crashes on ${options.name}`, () => {
    for (const [mode, reached] of modes) {
      for (const failpoint of reached) {
        for (const times of hitsOf(failpoint)) {
          const name = `a crash at ${failpoint}, hit ${times}, with ${mode}, loses nothing and repeats no effect`;
          fact(name, "processes", async (harness) => {
            const run = await crashRun(harness, mode, { failpoint, times });
            expect(run.unreached).toEqual([]);
            expectNothingLost(run);
          });
        }
      }
    }
  });
}

/** The failpoints that a run without earlier failures reaches. */
const modes: readonly (readonly [InboxMode, readonly Failpoint[]])[] = [
  ["inbox", failpoints.filter((failpoint) => !["inbox.kept", "inbox.finished"].includes(failpoint))],
  [
    "durableInbox",
    failpoints.filter((failpoint) => roleOf(failpoint) === "consumer" && failpoint !== "inbox.remembered"),
  ],
];

/** A relay takes and releases its lanes once in its life, and messages that arrive together are stored together. */
const once: readonly Failpoint[] = ["relay.owned", "relay.released", "inbox.kept"];

function hitsOf(failpoint: Failpoint): readonly number[] {
  return once.includes(failpoint) ? [1] : [1, 3];
}
