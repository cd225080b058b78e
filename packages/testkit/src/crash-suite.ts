import { type Failpoint, failpoints } from "postbox/store";
import { describe, expect } from "vitest";
import { crashRun, expectNothingLost, type InboxMode, roleOf } from "./crash-suite/crash-run.js";
import { storeFacts } from "./store-suite/store-facts.js";
import type { StoreSuiteOptions } from "./store-suite/store-harness.js";

/**
 * Kills a producer, a relay or a consumer at every failpoint, once on its first and once on a later hit, puts another
 * in its place, and proves that nothing was lost and no effect doubled. Needs the feature `processes`.
 */
export function crashSuite<Tx>(options: StoreSuiteOptions<Tx>): void {
  const fact = storeFacts(options);
  describe(`crashes on ${options.name}`, () => {
    for (const [mode, reached] of modes) {
      for (const failpoint of reached) {
        for (const times of hitsOf(failpoint)) {
          const name = `dying at ${failpoint}, hit ${times}, behind ${mode}, loses nothing and doubles nothing`;
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

/** Which failpoints are reached where everything goes well until then. */
const modes: readonly (readonly [InboxMode, readonly Failpoint[]])[] = [
  ["inbox", failpoints.filter((failpoint) => !["inbox.kept", "inbox.finished"].includes(failpoint))],
  [
    "durableInbox",
    failpoints.filter((failpoint) => roleOf(failpoint) === "consumer" && failpoint !== "inbox.remembered"),
  ],
];

/** A relay takes and gives back its lease once in its life; and what comes at once is kept at once. */
const once: readonly Failpoint[] = ["relay.owned", "relay.released", "inbox.kept"];

function hitsOf(failpoint: Failpoint): readonly number[] {
  return once.includes(failpoint) ? [1] : [1, 3];
}
