import { createOutbox, defineEvent, type Store, silent } from "postbox";
import { createSchedule } from "postbox/schedule";
import type { TickClaim } from "postbox/store";
import { describe, expect } from "vitest";
import { gate } from "../gate.js";
import { settlesBefore } from "../settles-before.js";
import { telemetryLog } from "../telemetry-log.js";
import { outbox as outboxName } from "./box-access.js";
import type { StoreFact } from "./store-facts.js";
import type { StoreHarness } from "./store-harness.js";

const hour = 3_600_000;

/** Written by hand, since the testkit depends on no schema library. */
const Beat = defineEvent({
  type: "test.clock.v1.Beat",
  schema: {
    "~standard": { version: 1, vendor: "testkit", validate: (value: unknown) => ({ value: value as { at: string } }) },
  },
});

/** Each tick of a schedule is claimed once, in a transaction. */
export function tickFacts<Tx>(fact: StoreFact<Tx>): void {
  const tick = ({ store }: Pick<StoreHarness<Tx>, "store">, name: string, claim?: TickClaim) =>
    store.transaction((tx) => store.tick(tx, name, claim));
  /** A schedule that began an hour ago, so that there are ticks to claim. */
  const begun = async (harness: StoreHarness<Tx>, name = "nightly") => {
    await tick(harness, name);
    await harness.advance(hour);
    const { lastTick: after, now } = await tick(harness, name);
    return { after, tick: Math.floor(now) - 1000 };
  };

  describe("the ticks of a schedule", () => {
    fact("count from its first call, by the database's clock", async (harness) => {
      const first = await tick(harness, "nightly");
      expect(first.claimed).toBe(false);
      expect(Number.isInteger(first.lastTick)).toBe(true);
      expect(Math.abs(first.now - first.lastTick)).toBeLessThan(60_000);
      expect(Math.abs(first.now - harness.now())).toBeLessThan(60_000);
      const again = await tick(harness, "nightly");
      expect(again).toEqual({ ...first, now: expect.any(Number) });
      expect(again.now).toBeGreaterThanOrEqual(first.now);
      expect(first.id.length).toBeGreaterThan(15);
      expect((await tick(harness, "hourly")).id).not.toBe(first.id);
    });

    fact("are claimed once, from the last tick", async (harness) => {
      const claim = await begun(harness);
      const { id } = await tick(harness, "nightly");
      expect(await tick(harness, "nightly", { ...claim, after: claim.after - 1 })).toMatchObject({ claimed: false });
      expect(await tick(harness, "nightly", claim)).toMatchObject({ id, claimed: true, lastTick: claim.tick });
      expect(await tick(harness, "nightly", claim)).toMatchObject({ id, claimed: false, lastTick: claim.tick });
      const next = { after: claim.tick, tick: claim.tick + 1 };
      expect(await tick(harness, "nightly", next)).toMatchObject({ claimed: true, lastTick: next.tick });
      expect(await tick({ store: harness.another() }, "nightly")).toMatchObject({ id, lastTick: next.tick });
    });

    fact("are not claimed before their time, nor backwards", async (harness) => {
      const { after, tick: at } = await begun(harness);
      expect(await tick(harness, "nightly", { after, tick: at + hour })).toMatchObject({
        claimed: false,
        lastTick: after,
      });
      expect(await tick(harness, "nightly", { after, tick: after })).toMatchObject({ claimed: false });
      expect(await tick(harness, "nightly", { after, tick: after - 1 })).toMatchObject({ claimed: false });
      expect(await tick(harness, "nightly", { after, tick: at })).toMatchObject({ claimed: true });
    });

    fact("are not claimed if the transaction rolls back, and the schedule does not begin", async (harness) => {
      const { store } = harness;
      const claim = await begun(harness);
      const before = await harness.fingerprint();
      const failing = store.transaction(async (tx) => {
        expect(await store.tick(tx, "nightly", claim)).toMatchObject({ claimed: true });
        expect(await store.tick(tx, "nightly")).toMatchObject({ lastTick: claim.tick });
        await store.tick(tx, "nightly", { after: claim.tick, tick: claim.tick + 1 });
        await store.tick(tx, "other");
        throw new Error("no paper");
      });
      await expect(failing).rejects.toThrow("no paper");
      expect(await harness.fingerprint()).toBe(before);
      expect(await tick(harness, "nightly")).toMatchObject({ lastTick: claim.after });
      expect(await tick(harness, "nightly", claim)).toMatchObject({ claimed: true });
    });

    fact("reject values that are not a transaction", async ({ store, impostors }) => {
      for (const impostor of impostors?.() ?? []) {
        await expect(store.tick(impostor as Tx, "nightly")).rejects.toMatchObject({ code: "not-a-transaction" });
      }
    });

    fact("are claimed by one of many concurrent calls", "concurrentTransactions", async (harness) => {
      const claim = await begun(harness);
      const all = Array.from({ length: 10 }, () => tick({ store: harness.another() }, "nightly", claim));
      const claimed = (await Promise.all(all)).filter((state) => state.claimed);
      expect(claimed).toHaveLength(1);
      const names = await Promise.all(Array.from({ length: 10 }, () => tick({ store: harness.another() }, "new")));
      expect(new Set(names.map(({ id }) => id)).size).toBe(1);
    });

    for (const ends of ["commits", "rolls back"] as const) {
      const title = `are claimed by the second if the first ${ends}: ${ends === "commits" ? "no" : "yes"}`;
      fact(title, "concurrentTransactions", async (harness) => {
        const { store } = harness;
        const claim = await begun(harness);
        const [claimed, mayEnd] = [gate(), gate()];
        const first = store.transaction(async (tx) => {
          await store.tick(tx, "nightly", claim);
          claimed.open();
          await mayEnd.opened;
          if (ends === "rolls back") throw new Error("no paper");
        });
        first.catch(() => {});
        await claimed.opened;
        const another = { store: harness.another() };
        await tick(another, "hourly");
        const second = tick(another, "nightly", claim);
        expect(await settlesBefore(second, tick(another, "hourly", claim))).toBe(false);
        mayEnd.open();
        expect(await second).toMatchObject({ claimed: ends === "rolls back", lastTick: claim.tick });
        await first.catch(() => {});
      });
    }

    fact("are published once each, by any number of processes", "concurrentTransactions", async (harness) => {
      const log = telemetryLog();
      const everyMs = 20;
      const run = (store: Store<Tx>) => {
        const outbox = createOutbox(store, { source: "/clock", telemetry: silent });
        const entry = {
          everyMs,
          message: (at: Date) => Beat.message({ at: at.toISOString() }),
          missed: "all",
        } as const;
        return createSchedule(outbox, { beat: entry }, { telemetry: log.telemetry });
      };
      const dying = await harness.process?.();
      // Killing it ends its pool, and its schedule cannot continue without that.
      const unlessKilled = (error: { readonly code?: unknown }) => {
        if (dying === undefined || error.code !== "store-closed") throw error;
      };
      const [first, second, third] = [
        run(harness.store),
        run(harness.another()),
        run(dying?.store ?? harness.another()),
      ];
      const all = [first, second, third] as const;
      try {
        await Promise.all(all.map((schedule) => schedule?.start()));
        await log.until("schedule.ticked", 10);
        await second?.stop();
        await dying?.kill();
        await log.until("schedule.ticked", log.of("schedule.ticked").length + 10);
        await second?.start();
        await log.until("schedule.ticked", log.of("schedule.ticked").length + 10);
      } finally {
        await Promise.all([first?.stop(), second?.stop(), third?.stop().catch(unlessKilled)]);
      }
      const published = (await harness.contents(outboxName)).pending;
      const ticks = published.map((id) => Date.parse(id.split("/")[1] as string));
      expect(ticks.length).toBeGreaterThanOrEqual(30);
      expect(ticks).toEqual(ticks.map((_, index) => (ticks[0] as number) + index * everyMs));
      expect(new Set(published.map((id) => id.split("/")[2])).size).toBe(1);
    });

    fact("are free again when the claiming process crashes", "processes", async (harness) => {
      const claim = await begun(harness);
      const dying = await harness.process?.();
      if (dying === undefined) throw new Error("a harness with processes starts one");
      const claimed = gate();
      const lost = dying.store.transaction(async (tx) => {
        await dying.store.tick(tx, "nightly", claim);
        claimed.open();
        await new Promise(() => {});
      });
      lost.catch(() => {});
      await claimed.opened;
      await dying.kill();
      expect(await tick(harness, "nightly", claim)).toMatchObject({ claimed: true });
    });
  });
}
