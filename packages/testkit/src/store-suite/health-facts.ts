import type { HealthProblem } from "postbox";
import type { AnyProblem, Health, HealthOptions } from "postbox/admin";
import { laneCount } from "postbox/store";
import { describe, expect } from "vitest";
import { testMessage, testMessages } from "../messages.js";
import { commit, join, leaseMs, outbox } from "./box-access.js";
import { ann, oneOfEach, operatedBox, scheduledMessage } from "./operated-box.js";
import { arrivalOf, remembering } from "./remembering.js";
import type { StoreFact } from "./store-facts.js";
import type { StoreHarness } from "./store-harness.js";

const minute = 60_000;
/** A relay renews its lease three times before it would expire. */
const twoLeases = 6;
/** How long a fact may take on a slow machine. */
const slow = minute;

type Code = HealthProblem["code"];

/** Problems are reported by code, with figures, and no longer after they were resolved. */
export function healthFacts<Tx>(fact: StoreFact<Tx>): void {
  const codes = ({ problems }: Health<AnyProblem>) => problems.map(({ code }) => code);
  const problem = <C extends Code>({ problems }: Health<AnyProblem>, code: C) =>
    problems.find((each) => each.code === code) as Extract<HealthProblem, { code: C }> | undefined;
  /** Advances the time without the relay losing its lanes. */
  const advance = async (harness: StoreHarness<Tx>, ms: number) => {
    await harness.advance(ms);
    await harness.store.box(outbox).renew("relay-1", leaseMs, "key");
  };
  const between = (ms: number | undefined, least: number) => {
    expect(ms).toBeGreaterThanOrEqual(least);
    expect(ms).toBeLessThan(least + slow);
  };

  describe("health", () => {
    fact("of a working box has no problem", async (harness) => {
      const { finish, fail } = await operatedBox(harness);
      expect(await harness.store.health()).toEqual({ healthy: true, problems: [] });
      await finish(testMessage("done"));
      await fail("not now", testMessage("waiting", { key: "k" }));
      await commit(harness, testMessage("pending"), scheduledMessage("scheduled", 60 * minute));
      expect(await harness.store.health()).toEqual({ healthy: true, problems: [] });
    });

    fact("reports the oldest unsent message until it is sent", async (harness) => {
      const { settle } = await operatedBox(harness);
      await commit(harness, testMessage("old", { topic: "orders" }));
      await advance(harness, 2 * minute);
      await commit(harness, ...testMessages("new", 5));
      const health = await harness.store.health();
      expect(health.healthy).toBe(false);
      expect(codes(health)).toEqual(["unsent-too-old"]);
      const found = problem(health, "unsent-too-old");
      expect(found).toMatchObject({ severity: "error", id: "old", topic: "orders", status: "pending" });
      between(found?.ageMs, 2 * minute);
      expect(codes(await harness.store.health({ unsentAgeMs: 60 * minute }))).toEqual([]);
      await settle("old", { to: "sent" });
      expect(codes(await harness.store.health())).toEqual([]);
    });

    fact("counts a waiting message from when it is due", async (harness) => {
      const { settle } = await operatedBox(harness);
      await commit(harness, testMessage("w", { key: "k" }));
      await settle("w", { to: "wait", attempts: 1, retryInMs: 10 * minute, error: "not now" });
      await advance(harness, 9 * minute);
      expect(codes(await harness.store.health())).toEqual([]);
      await advance(harness, 5 * minute);
      const found = problem(await harness.store.health(), "unsent-too-old");
      expect(found).toMatchObject({ id: "w", status: "waiting" });
      between(found?.ageMs, 4 * minute);
      await settle("w", { to: "sent" });
      expect(codes(await harness.store.health())).toEqual([]);
    });

    fact("reports a message that is retried for too long, with its last error", async (harness) => {
      const { settle } = await operatedBox(harness);
      await commit(harness, testMessage("w", { key: "k", topic: "orders" }), testMessage("behind", { key: "k" }));
      const later = { to: "wait", attempts: 0, retryInMs: 10 * minute, error: "no queue takes it" } as const;
      await settle("w", later);
      await advance(harness, 11 * minute);
      await settle("w", later);
      await advance(harness, 9 * minute);
      const health = await harness.store.health({ unsentAgeMs: 60 * minute });
      expect(health.healthy).toBe(true);
      expect(codes(health)).toEqual(["retried-too-long"]);
      const found = problem(health, "retried-too-long");
      expect(found).toMatchObject({ id: "w", topic: "orders", attempts: 0, lastError: "no queue takes it" });
      between(found?.ageMs, 20 * minute);
      expect(codes(await harness.store.health({ unsentAgeMs: 60 * minute, retriedForMs: 60 * minute }))).toEqual([]);
      await advance(harness, 2 * minute);
      await settle("w", { to: "sent" });
      expect(codes(await harness.store.health({ unsentAgeMs: 60 * minute }))).toEqual([]);
    });

    fact("reports a message that waits for a queue, though an older one fails for another reason", async (harness) => {
      const { fail } = await operatedBox(harness);
      await fail("refused", testMessage("older", { key: "k" }));
      await harness.advance(1000);
      await fail("[unroutable] no queue takes it", testMessage("waits", { key: "l" }));
      await advance(harness, 2 * minute);
      const health = await harness.store.health({ unsentAgeMs: minute });
      expect(problem(health, "retried-too-long")).toMatchObject({ id: "waits", severity: "warning" });
    });

    fact("reports lanes without an owner; an error if they have messages and no relay is running", async (harness) => {
      // A service that only consumes has an outbox, too.
      expect(codes(await harness.store.health())).toEqual([]);
      await commit(harness, testMessage("m"));
      const unowned = await harness.store.health();
      expect(unowned).toMatchObject({
        healthy: false,
        problems: [{ code: "lanes-unowned", severity: "error", lanes: laneCount, relays: 0 }],
      });
      const { box, lanes, settle } = await operatedBox(harness);
      expect(codes(await harness.store.health())).toEqual([]);
      await settle("m", { to: "sent" });
      await box.release("relay-1", lanes.slice(0, 3));
      expect(problem(await harness.store.health(), "lanes-unowned")).toMatchObject({
        severity: "warning",
        lanes: 3,
        relays: 1,
      });
      // As in a deployment, until the relay's next renewal.
      await box.release("relay-1", lanes.slice(3));
      await commit(harness, testMessage("n"));
      expect(await harness.store.health()).toMatchObject({
        healthy: true,
        problems: [{ code: "lanes-unowned", severity: "warning", lanes: laneCount, relays: 1 }],
      });
    });

    fact("does not report lanes where nothing is due yet", async (harness) => {
      const { box, fail } = await operatedBox(harness);
      await fail("not now", testMessage("waiting", { key: "k" }));
      await commit(harness, scheduledMessage("scheduled", 60 * minute));
      await box.release("relay-1");
      expect(codes(await harness.store.health())).toEqual([]);
      await harness.advance(61 * minute);
      const due = problem(await harness.store.health(), "lanes-unowned");
      expect(due?.severity).toBe("error");
    });

    fact("reports the lanes of a crashed relay", async (harness) => {
      await operatedBox(harness);
      await harness.advance(leaseMs + 1);
      expect(codes(await harness.store.health())).toEqual([]);
      await commit(harness, testMessage("m"));
      expect(problem(await harness.store.health(), "lanes-unowned")).toMatchObject({ lanes: laneCount, relays: 0 });
      await join(harness.store.box(outbox), "relay-2");
      expect(codes(await harness.store.health())).toEqual([]);
    });

    fact("reports relays without a lane for two leases, unless they stand by for a total order", async (harness) => {
      const { box } = await operatedBox(harness);
      // As in a deployment, where it waits for the lanes of other relays.
      for (let renewals = 0; renewals <= twoLeases; renewals++) await box.renew("relay-2", leaseMs, "key");
      expect(codes(await harness.store.health())).toEqual([]);
      await box.renew("relay-2", leaseMs, "key");
      const health = await harness.store.health();
      expect(health).toMatchObject({
        healthy: true,
        problems: [{ code: "relays-idle", severity: "warning", relays: 2, idle: 1, owners: ["relay-2"] }],
      });
      await box.release("relay-2");
      expect(codes(await harness.store.health())).toEqual([]);
      for (const owner of ["relay-1", "relay-2"]) await box.renew(owner, leaseMs, "total");
      expect(codes(await harness.store.health())).toEqual([]);
    });

    fact("reports more relays than lanes", async (harness) => {
      const { store } = harness;
      const box = store.box(outbox);
      for (let relay = 0; relay <= laneCount; relay++) {
        await box.renew(`relay-${relay}`, leaseMs, "key");
        await box.own(`relay-${relay}`, 1);
      }
      for (let renewal = 0; renewal <= twoLeases; renewal++) await box.renew(`relay-${laneCount}`, leaseMs, "key");
      const found = problem(await store.health(), "relays-idle");
      expect(found).toMatchObject({ relays: laneCount + 1, idle: 1, owners: [`relay-${laneCount}`] });
    });

    fact("reports since when a box is paused, and not its lanes without owners", async (harness) => {
      const { admin } = harness.store;
      const { box } = await operatedBox(harness);
      await admin.pause(ann);
      await box.release("relay-1", await box.renew("relay-1", leaseMs, "key").then(({ lanes }) => lanes));
      await advance(harness, 5 * minute);
      await commit(harness, testMessage("m"));
      const health = await harness.store.health();
      expect(health.healthy).toBe(true);
      expect(codes(health)).toEqual(["paused"]);
      const found = problem(health, "paused");
      expect(found?.since).toBeInstanceOf(Date);
      await advance(harness, 2 * minute);
      expect(codes(await harness.store.health())).toEqual(["unsent-too-old", "paused"]);
      await admin.resume(ann);
      await join(box, "relay-1");
      expect(codes(await harness.store.health({ unsentAgeMs: 60 * minute }))).toEqual([]);
    });

    fact("counts parked messages above a limit", async (harness) => {
      const { park } = await operatedBox(harness);
      await park("never", ...testMessages("p", 3));
      const health = await harness.store.health();
      expect(health).toMatchObject({
        healthy: true,
        problems: [{ code: "parked", severity: "warning", count: 3, more: false }],
      });
      expect(problem(await harness.store.health({ parked: 2 }), "parked")).toMatchObject({ count: 3 });
      expect(codes(await harness.store.health({ parked: 3 }))).toEqual([]);
      await park("never", ...testMessages("q", 1000));
      expect(problem(await harness.store.health(), "parked")).toMatchObject({ count: 1000, more: true });
      expect(problem(await harness.store.health({ parked: 3 }), "parked")).toMatchObject({ count: 1003, more: false });
      const { confirm } = await harness.store.admin.dryRun("discard", {});
      await harness.store.admin.discard({}, { ...ann, confirm });
      expect(codes(await harness.store.health())).toEqual([]);
    });

    fact("reports keys that an operator has to release", async (harness) => {
      const { settle, fail } = await operatedBox(harness);
      await fail("not now", testMessage("f", { key: "soon" }));
      await commit(harness, testMessage("a", { key: "a" }), testMessage("b", { key: "b" }));
      for (const id of ["a", "b"]) await settle(id, { to: "parked", attempts: 1, error: "never", hold: true });
      const found = problem(await harness.store.health(), "held-for-good");
      expect(found).toMatchObject({ severity: "warning", count: 2, more: false, keys: ["a", "b"] });
      await harness.store.admin.release("a", ann);
      expect(problem(await harness.store.health(), "held-for-good")).toMatchObject({ count: 1, keys: ["b"] });
      await harness.store.admin.release("b", ann);
      expect(codes(await harness.store.health())).toEqual(["parked"]);
    });

    fact("reports scheduled messages that are late", async (harness) => {
      const { box } = await operatedBox(harness);
      await commit(harness, scheduledMessage("s", minute), scheduledMessage("t", 60 * minute));
      await advance(harness, minute + minute / 2);
      expect(codes(await harness.store.health({ unsentAgeMs: 10 * minute }))).toEqual([]);
      await advance(harness, 5 * minute);
      const health = await harness.store.health();
      expect(health.healthy).toBe(false);
      const found = problem(health, "schedule-late");
      expect(found).toMatchObject({ severity: "error", id: "s" });
      expect(found?.lateMs).toBeGreaterThan(5 * minute);
      expect(found?.lateMs).toBeLessThan(7 * minute);
      await box.promote(10);
      expect(codes(await harness.store.health())).toEqual([]);
    });

    fact("covers all boxes, including those of consumers, or a single one", async (harness) => {
      const { store } = harness;
      const found = await operatedBox(harness);
      expect(await store.admin.boxes()).toEqual([outbox, "inbox/other"]);
      await commit(harness, testMessage("m"));
      await advance(harness, 2 * minute);
      await found.park("never", testMessage("p"));
      await store.inbox.keep([arrivalOf("other", testMessage("kept"))], remembering);
      await advance(harness, 2 * minute);
      const { problems } = await store.health();
      const all = problems.map(({ code, box }) => `${code} ${box}`);
      expect(all).toContain("unsent-too-old outbox");
      expect(all).toContain("unsent-too-old inbox/other");
      expect(all).toContain("parked outbox");
      const one = await store.health({ box: "inbox/other" });
      expect(new Set(one.problems.map(({ box }) => box))).toEqual(new Set(["inbox/other"]));
    });

    fact("reports errors first, and nothing of a former consumer with an empty box", async (harness) => {
      const { park } = await operatedBox(harness);
      await park("never", testMessage("p"));
      await commit(harness, testMessage("m"));
      await advance(harness, 2 * minute);
      expect(codes(await harness.store.health())).toEqual(["unsent-too-old", "parked"]);
      expect(codes(await harness.store.health({ box: "inbox/other" }))).toEqual([]);
    });

    fact("changes nothing", async (harness) => {
      await oneOfEach(harness);
      await harness.advance(120 * minute);
      const before = await harness.fingerprint();
      expect((await harness.store.health()).healthy).toBe(false);
      await harness.store.health({ box: "inbox/other", timeoutMs: 10_000 });
      expect(await harness.fingerprint()).toBe(before);
    });

    fact("rejects invalid options", async ({ store }) => {
      const wrong: Record<keyof HealthOptions, readonly unknown[]> = {
        box: ["no such box", "", 1],
        unsentAgeMs: [-1, Number.NaN, Number.POSITIVE_INFINITY, "1"],
        retriedForMs: [-1, "soon"],
        parked: [-1, 0.5, 1_000_001],
        timeoutMs: [0, -1, 2 ** 31, Number.NaN],
      };
      for (const [name, values] of Object.entries(wrong)) {
        for (const value of values) {
          await expect(store.health({ [name]: value }), `${name}: ${value}`).rejects.toMatchObject({
            code: "option-invalid",
            path: name,
          });
        }
      }
      const unknown = store.health({ unsentAge: 1 } as HealthOptions);
      await expect(unknown).rejects.toMatchObject({ code: "option-unknown", path: "unsentAge" });
      for (const options of [null, [], 5]) {
        await expect(store.health(options as HealthOptions)).rejects.toMatchObject({ code: "option-invalid" });
      }
    });
  });
}
