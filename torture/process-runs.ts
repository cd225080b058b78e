import { execFileSync } from "node:child_process";
import { describeOnEach } from "@postbox/testkit/servers";
import { beforeAll, expect, inject, it } from "vitest";
import { endToEnd, type RunReport } from "./processes/end-to-end.js";

/** `POSTBOX_TEST_SEED` draws the same faults once more. */
const firstSeed = Number(process.env.POSTBOX_TEST_SEED ?? Math.floor(Math.random() * 1e9));

/** Runs of 10,000 messages each, from PostgreSQL through this broker to PostgreSQL, with a seed each. */
export function processRuns(service: "rabbitmq" | "kafka", runs: number): void {
  describeOnEach(service, ({ url: broker }) => {
    const database = inject("servers").found.findLast(({ service }) => service === "postgres")?.url;
    // The processes run what is built.
    beforeAll(() => {
      execFileSync(process.execPath, ["node_modules/typescript/bin/tsc", "-b", "torture"], { stdio: "inherit" });
    });

    const seeds = Array.from({ length: runs }, (_, run) => firstSeed + run);
    it.skipIf(database === undefined).for(seeds)(
      "processes that are killed, paused and cut off: 10,000 messages, nothing lost, doubled or out of order " +
        "(POSTBOX_TEST_SEED=%d)",
      { timeout: 5 * 60_000 },
      async (seed) => {
        console.log(`POSTBOX_TEST_SEED=${seed}`);
        const report = await endToEnd({ database: database as string, broker, seed, messages: 10_000 });
        console.log(told(report));
        expect({ violations: report.violations, complaints: report.complaints }, `see ${report.folder}`).toEqual({
          violations: [],
          complaints: [],
        });
        // Else it would have shown nothing.
        const { committed, rolledBack, delivered, faults } = report;
        expect(committed).toBeGreaterThanOrEqual(10_000);
        expect(rolledBack).toBeGreaterThan(0);
        expect(delivered.billing).toBeGreaterThan(committed);
        expect(delivered.ledger).toBeGreaterThan(committed);
        expect(new Set(faults.map(({ kind }) => kind)).size).toBe(5);
      },
    );
  });
}

function told({ committed, rolledBack, accepted, calm, delivered, effects, faults }: RunReport): string {
  const befell = faults.map(({ kind, whom }) => `${kind} ${whom}`).join(", ");
  return (
    `${committed} messages committed, ${rolledBack} transactions rolled back; sent ${accepted} times, ${calm} ` +
    `before the first fault; delivered ${delivered.billing} and ` +
    `${delivered.ledger} times; ${effects.billing} and ${effects.ledger} effects; ${befell}`
  );
}
