import { telemetryLog, testMessages } from "@postbox/testkit";
import { describeOnEach, postgresTestData } from "@postbox/testkit/servers";
import pg, { type ClientBase } from "pg";
import { createRelay, createRouter, defineEvent, inbox, transaction } from "postbox";
import { memoryBroker } from "postbox/memory";
import { pgTransactions } from "postbox/postgres";
import { afterAll, expect, it } from "vitest";

const count = 10_000;
const anything = { "~standard": { version: 1, vendor: "torture", validate: (value: unknown) => ({ value }) } } as const;
const Happened = defineEvent({ type: "testkit.facts.v1.Happened", schema: anything });

describeOnEach("postgres", ({ url }) => {
  const connect = () => new pg.Pool({ connectionString: url, max: 20 });
  const data = postgresTestData({ connect, transactions: pgTransactions });
  afterAll(data.drop);

  it(`a replay of ${count} messages changes nothing twice behind an inbox`, { timeout: 300_000 }, async () => {
    const harness = await data.create();
    const { store } = harness;
    const broker = memoryBroker();
    const log = telemetryLog();
    const router = createRouter("torture", { telemetry: log.telemetry, concurrency: 10 })
      .use(transaction(store))
      .use(inbox(store))
      .on(Happened, async (_, { tx, message }) => harness.effect(tx as ClientBase, message.id));
    const messages = testMessages("m", count).map((message, n) => ({ ...message, key: `k${n % 100}` }));
    for (let at = 0; at < count; at += 1000) {
      await store.transaction((tx) => store.append(tx, "outbox", messages.slice(at, at + 1000)));
    }
    const relay = createRelay(store, broker.sender(), { onSent: "keep", pollIntervalMs: 50 });
    router.start(broker.receiver());
    relay.start();
    try {
      await reached("delivery.handled");
      const dryRun = await store.admin.dryRun("replay", {});
      expect(dryRun.count).toBe(count);
      const replayed = await store.admin.replay({}, { by: "torture", confirm: dryRun.confirm, perSecond: 20_000 });
      expect(replayed).toEqual({ count });
      await reached("delivery.skipped");
    } finally {
      await relay.stop();
      await router.stop();
    }
    const effects = await harness.effects();
    expect([effects.length, new Set(effects).size]).toEqual([count, count]);
    expect((await harness.contents("outbox")).done).toHaveLength(2 * count);
    expect((await store.admin.audit({ limit: 1000 })).reduce((sum, entry) => sum + entry.count, 0)).toBe(count);

    /** However long it takes, as long as it goes on. */
    async function reached(name: "delivery.handled" | "delivery.skipped"): Promise<void> {
      for (let seen = 0; seen < count; ) {
        await log.until(name, seen + 1);
        seen = log.of(name).length;
      }
    }
  });
});
