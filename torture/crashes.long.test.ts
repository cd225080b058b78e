import { manualRuntime } from "@postbox/testkit";
import { describeOn, describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import { memoryStoreHarness, type StoreHarness } from "@postbox/testkit/suites";
import pg from "pg";
import { pgTransactions } from "postbox/postgres";
import { type Failpoint, failpoints } from "postbox/store";
import { afterAll, it } from "vitest";
import { type Crash, crashRun, expectNothingLost, roleOf } from "../packages/testkit/src/crash-suite/crash-run.js";

/** Each seed is a run. `POSTBOX_TEST_SEED` begins elsewhere, such as where one has failed. */
const firstSeed = Number(process.env.POSTBOX_TEST_SEED ?? Math.floor(Math.random() * 1e9));

/**
 * A stop is no crash, and a relay that owns its lanes does so once: both have their place in the suite of each store.
 */
const candidates = failpoints.filter((name) => name !== "relay.released" && name !== "relay.owned");

describeOn({ title: "memory" }, () => crashes(100, memoryStoreHarness));

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 12 });
  const data = postgresTestData({ connect, transactions: pgTransactions });
  crashes(60, data.create);
  afterAll(data.drop);
});

function crashes<Tx>(runs: number, create: () => Promise<StoreHarness<Tx>>): void {
  it(`a producer, a relay and a consumer that die in one run: ${runs} times, nothing is lost or doubled`, async () => {
    for (let seed = firstSeed; seed < firstSeed + runs; seed++) {
      const drawn = crashesOf(seed);
      const harness = await create();
      try {
        expectNothingLost(await crashRun(harness, seed % 2 === 0 ? "inbox" : "durableInbox", ...drawn));
      } catch (error) {
        const how = drawn.map(({ failpoint, times }) => `${failpoint}, hit ${times}`).join("; ");
        throw new Error(`POSTBOX_TEST_SEED=${seed} (${how})`, { cause: error });
      } finally {
        await harness.close();
      }
    }
  });
}

/** One death of each role. */
function crashesOf(seed: number): Crash[] {
  const { random } = manualRuntime({ seed });
  const upTo = (count: number) => Math.floor(random() * count);
  return (["producer", "relay", "consumer"] as const).map((role) => {
    const own = candidates.filter((name) => roleOf(name) === role);
    const failpoint = own[upTo(own.length)] as Failpoint;
    // A relay takes several messages at once, the others one after the other: each order is a hit.
    return { failpoint, times: 1 + upTo(role === "relay" ? 3 : 12) };
  });
}
