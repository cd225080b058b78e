import { laneCount } from "postbox/store";
import { describe, expect } from "vitest";
import { comparable, testMessage, testMessages } from "../messages.js";
import { commit, leaseMs, outbox, rowOf } from "./box-access.js";
import { oneOfEach, operatedBox, scheduledMessage, withoutSchedule } from "./operated-box.js";
import type { StoreFact } from "./store-facts.js";
import type { StoreHarness } from "./store-harness.js";

const every = ["pending", "waiting", "scheduled", "parked", "done"] as const;

/** Reads by an operator return the true state of a box and change nothing. */
export function lookingFacts<Tx>(fact: StoreFact<Tx>): void {
  const listed = async ({ store }: StoreHarness<Tx>, filter: object) =>
    (await store.admin.list(filter)).messages.map(({ id }) => id);

  describe("stats", () => {
    fact("of an empty box", async ({ store }) => {
      expect(await store.admin.stats({ done: true })).toEqual({
        pending: { count: 0 },
        waiting: { count: 0 },
        scheduled: { count: 0 },
        parked: { count: 0 },
        done: { count: 0 },
        topics: [],
        heldKeys: { count: 0, forGood: 0 },
        paused: false,
        lanes: { unowned: laneCount, owners: [] },
      });
    });

    fact("count messages by status and topic", async (harness) => {
      const { park, fail, finish } = await operatedBox(harness);
      const to = (topic: string) => ({ topic });
      await park("never", ...testMessages("p", 3, to("a")), testMessage("q", to("b")));
      await fail("not now", ...testMessages("w", 2, to("b")));
      await finish(...testMessages("d", 4, to("c")));
      await commit(harness, ...testMessages("m", 5, to("a")), scheduledMessage("s", 60_000));
      const stats = await harness.store.admin.stats({ done: true });
      const { pending, waiting, scheduled, parked, done } = stats;
      expect([pending, waiting, scheduled, parked, done].map((each) => each?.count)).toEqual([5, 2, 1, 4, 4]);
      const none = { pending: 0, waiting: 0, scheduled: 0, parked: 0 };
      expect(stats.topics).toEqual([
        { ...none, topic: "a", pending: 5, parked: 3, oldestAgeMs: expect.any(Number) },
        { ...none, topic: "b", waiting: 2, parked: 1, oldestAgeMs: expect.any(Number) },
        { ...none, topic: "testkit.facts.v1", scheduled: 1 },
      ]);
      expect(await harness.store.admin.stats()).not.toHaveProperty("done");
      expect((await harness.store.admin.stats({ box: "inbox/other" })).pending).toEqual({ count: 0 });
    });

    fact("report the age of the oldest, and how late scheduled ones are", async (harness) => {
      await oneOfEach(harness);
      expect((await harness.store.admin.stats()).scheduled.oldestAgeMs).toBe(0);
      const [hour, slow] = [3_600_000, 60_000];
      await harness.advance(2 * hour);
      await commit(harness, testMessage("new"));
      const { scheduled, ...stats } = await harness.store.admin.stats({ done: true });
      for (const { oldestAgeMs = 0 } of [stats.pending, stats.waiting, stats.parked, stats.done ?? { count: 0 }]) {
        expect(oldestAgeMs).toBeGreaterThanOrEqual(2 * hour);
        expect(oldestAgeMs).toBeLessThan(2 * hour + slow);
      }
      expect(scheduled.oldestAgeMs).toBeGreaterThan(hour - slow);
      expect(scheduled.oldestAgeMs).toBeLessThan(hour + slow);
    });

    fact("count held keys, and those held until released, but not messages that wait alone", async (harness) => {
      const { fail, settle } = await operatedBox(harness);
      await fail("no", testMessage("a", { key: "a" }), testMessage("b", { key: "b" }), testMessage("keyless"));
      await commit(harness, testMessage("c", { key: "c" }));
      await settle("c", { to: "parked", attempts: 1, error: "never", hold: true });
      expect((await harness.store.admin.stats()).heldKeys).toEqual({ count: 3, forGood: 1 });
    });

    fact("report which relays own lanes, stand by, or have crashed", async (harness) => {
      const { store, another } = harness;
      const box = store.box(outbox);
      await box.renew("relay-b", leaseMs, "key");
      await box.own("relay-b", 10);
      await harness.advance(leaseMs / 2);
      await another().box(outbox).renew("relay-a", leaseMs, "key");
      const owners = async () => (await store.admin.stats()).lanes;
      expect(await owners()).toEqual({
        unowned: laneCount - 10,
        owners: [
          { owner: "relay-a", lanes: 0, lives: true },
          { owner: "relay-b", lanes: 10, lives: true },
        ],
      });
      await harness.advance(leaseMs / 2 + 1);
      expect((await owners()).owners.map(({ lives }) => lives)).toEqual([true, false]);
    });

    fact("are consistent while others append and settle", "concurrentTransactions", async (harness) => {
      const { box, lanes, read } = await operatedBox(harness);
      const { store } = harness;
      const pair = (n: number) => [testMessage(`a${n}`, { topic: "a" }), testMessage(`b${n}`, { topic: "b" })];
      let appending = true;
      const appends = (async () => {
        for (let n = 0; n < 40; n++) await commit(harness, ...pair(n));
      })().finally(() => {
        appending = false;
      });
      const parks = (async () => {
        while (appending) {
          const rows = (await read()).slice(0, 3);
          await box.settle(
            lanes,
            rows.map((row) => ({ row, to: "parked" as const, attempts: 1, error: "never" })),
          );
        }
      })();
      const looks = (async () => {
        do {
          const { pending, parked, topics } = await store.admin.stats();
          expect((pending.count + parked.count) % 2).toBe(0);
          const [a, b] = topics.map((topic) => topic.pending + topic.parked);
          expect(a).toBe(b);
        } while (appending);
      })();
      await Promise.all([appends, parks, looks]);
      const { pending, parked } = await store.admin.stats();
      expect(pending.count + parked.count).toBe(80);
    });
  });

  describe("list", () => {
    fact("shows each message where it is, without its data", async (harness) => {
      await oneOfEach(harness);
      const { messages, next } = await harness.store.admin.list();
      expect(next).toBeUndefined();
      expect(messages.map(({ status, id }) => [status, id])).toEqual(every.map((status) => [status, status]));
      for (const each of messages) {
        const { type, topic, source, data } = testMessage(each.id);
        expect(each).toMatchObject({ type, topic, source, bytes: data.byteLength });
        expect(each).not.toHaveProperty("key");
        expect(each).not.toHaveProperty("message");
        expect(each.createdAt).toBeInstanceOf(Date);
        expect(each.updatedAt.getTime()).toBeGreaterThanOrEqual(each.createdAt.getTime());
        expect("publishedAt" in each).toBe(each.status === "done");
        expect("dueAt" in each).toBe(["waiting", "scheduled"].includes(each.status));
      }
      const [, waiting, , parked, done] = messages;
      expect(waiting).toMatchObject({ attempts: 1, lastError: "not now" });
      expect(parked).toMatchObject({ attempts: 3, lastError: "never" });
      expect(done).toMatchObject({ attempts: 1 });
    });

    fact(
      "shows when scheduled and waiting messages continue, unless an operator has to release them",
      async (harness) => {
        const { settle } = await operatedBox(harness);
        const scheduled = scheduledMessage("s", 60_000);
        await commit(harness, scheduled, ...testMessages("k", 2, { key: "k" }));
        await settle("k-0", { to: "parked", attempts: 1, error: "never", hold: true });
        await settle("k-1", { to: "wait", attempts: 0 });
        const { messages } = await harness.store.admin.list({ status: ["scheduled", "waiting"] });
        expect(messages.map(({ id, dueAt }) => [id, dueAt?.toISOString()])).toEqual([
          ["k-1", undefined],
          ["s", scheduled.deliverAt],
        ]);
      },
    );

    fact("finds by each field, and by several at once", async (harness) => {
      const { park } = await operatedBox(harness);
      const odd = { type: "other.v1.Type", topic: "t", key: "k", source: "/other", extensions: { correlationid: "c" } };
      await park("too large: 100% of it", testMessage("odd", odd));
      await park("too large", testMessage("even", { key: "k2", extensions: { correlationid: "c2" } }));
      await commit(harness, testMessage("pending", { key: "k" }));
      const find = (filter: object) => listed(harness, filter);
      const { correlationid: correlationId } = odd.extensions;
      const { type, topic, key, source } = odd;
      for (const filter of [{ type }, { topic }, { source }, { correlationId }, { error: "100%" }]) {
        expect(await find(filter), JSON.stringify(filter)).toEqual(["odd"]);
      }
      expect(await find({ key })).toEqual(["pending", "odd"]);
      expect(await find({ key, status: "parked" })).toEqual(["odd"]);
      expect(await find({ error: "too large" })).toEqual(["even", "odd"]);
      expect(await find({ minAttempts: 3 })).toEqual(["even", "odd"]);
      expect(await find({ minAttempts: 4 })).toEqual([]);
      expect(await find({ ids: ["even", "pending", "nobody"] })).toEqual(["pending", "even"]);
      expect(await find({ ids: [] })).toEqual([]);
      expect(await find({ ids: ["even", "odd"], type })).toEqual(["odd"]);
      expect(await find({ type, key: "k2" })).toEqual([]);
      expect(await find({ box: "inbox/other" })).toEqual([]);
    });

    fact("finds by the time of the append", async (harness) => {
      await commit(harness, testMessage("old"));
      await harness.advance(60_000);
      await commit(harness, testMessage("new"));
      const { messages } = await harness.store.admin.list();
      const createdAt = messages.find(({ id }) => id === "new")?.createdAt as Date;
      expect(await listed(harness, { createdFrom: createdAt })).toEqual(["new"]);
      expect(await listed(harness, { createdBefore: createdAt })).toEqual(["old"]);
      const [soon, earlier] = [60_000, -61_000].map((ms) => new Date(createdAt.getTime() + ms));
      expect(await listed(harness, { createdFrom: earlier, createdBefore: soon })).toEqual(["new", "old"]);
    });

    fact("pages through all messages, each once, the newest first, while others append", async (harness) => {
      const { park, finish } = await operatedBox(harness);
      await park("never", ...testMessages("parked", 5));
      await finish(...testMessages("done", 4));
      await commit(harness, ...testMessages("pending", 6));
      const seen: string[] = [];
      let after: string | undefined;
      for (let page = 0; page === 0 || after !== undefined; page++) {
        const { messages, next } = await harness.store.admin.list({ limit: 4, ...(after !== undefined && { after }) });
        expect(messages.length).toBe(page < 3 ? 4 : 3);
        seen.push(...messages.map(({ id }) => id));
        after = next;
        await commit(harness, ...testMessages(`more-${page}`, 2));
      }
      const newestFirst = (name: string, count: number) =>
        testMessages(name, count)
          .map(({ id }) => id)
          .reverse();
      expect(seen).toEqual([...newestFirst("pending", 6), ...newestFirst("parked", 5), ...newestFirst("done", 4)]);
    });

    fact("ends without a next page if the page holds just all messages", async (harness) => {
      await commit(harness, ...testMessages("m", 4));
      const page = await harness.store.admin.list({ limit: 4 });
      expect(page.messages).toHaveLength(4);
      expect(page).not.toHaveProperty("next");
    });
  });

  describe("get", () => {
    fact("returns the message as it was appended, byte for byte, wherever it is", async (harness) => {
      await oneOfEach(harness);
      const data = Uint8Array.from({ length: 256 }, (_, byte) => byte);
      const full = testMessage("full", { data, key: "k", headers: { h: "1" }, extensions: { correlationid: "c" } });
      await commit(harness, full);
      const [found, ...rest] = await harness.store.admin.get("full");
      expect(rest).toEqual([]);
      expect(comparable(found?.message ?? testMessage("none"))).toEqual(comparable(full));
      expect(found).toMatchObject({ status: "pending", bytes: 256, attempts: 0, failures: [] });
      for (const status of every) {
        const [one] = await harness.store.admin.get(status);
        expect(one?.status).toBe(status);
        const message = withoutSchedule(one?.message ?? testMessage("none"));
        expect(comparable(message)).toEqual(comparable(testMessage(status)));
      }
      expect(await harness.store.admin.get("nobody")).toEqual([]);
      expect(await harness.store.admin.get("full", { box: "inbox/other" })).toEqual([]);
    });

    fact("returns the last 20 failed attempts, wherever the message has moved meanwhile", async (harness) => {
      const { settle } = await operatedBox(harness);
      await commit(harness, testMessage("m", { key: "k" }));
      await settle("m", { to: "pending", attempts: 1, error: "error 1" });
      for (let attempts = 2; attempts < 25; attempts++) {
        await settle("m", { to: "wait", attempts, retryInMs: 0, error: `error ${attempts}` });
      }
      await settle("m", { to: "wait", attempts: 24 });
      await settle("m", { to: "parked", attempts: 25, error: "error 25" });
      const [found] = await harness.store.admin.get("m");
      const last = Array.from({ length: 20 }, (_, index) => index + 6);
      expect(found?.failures.map(({ attempt, error }) => [attempt, error])).toEqual(
        last.map((attempt) => [attempt, `error ${attempt}`]),
      );
      const times = found?.failures.map(({ at }) => at.getTime()) ?? [];
      expect(times).toEqual([...times].sort((a, b) => a - b));
      expect(Math.abs((times[0] ?? 0) - Date.now())).toBeLessThan(600_000);
    });

    fact("returns failures even if it was sent in the end", async (harness) => {
      const { settle } = await operatedBox(harness);
      await commit(harness, testMessage("m"));
      await settle("m", { to: "wait", attempts: 1, retryInMs: 0, error: "not now" });
      await settle("m", { to: "sent" }, { keep: true });
      const [found] = await harness.store.admin.get("m");
      expect(found).toMatchObject({ status: "done", attempts: 2, failures: [{ attempt: 1, error: "not now" }] });
    });

    fact("finds all messages with the id", async (harness) => {
      const { finish } = await operatedBox(harness);
      await finish(testMessage("m"));
      await commit(harness, testMessage("m"));
      expect((await harness.store.admin.get("m")).map(({ status }) => status)).toEqual(["pending", "done"]);
    });
  });

  fact("reads change nothing", async (harness) => {
    const { read } = await oneOfEach(harness);
    await harness.store.admin.retry({ ids: ["parked"] }, { by: "ann" });
    rowOf(await read(), "parked");
    const { admin } = harness.store;
    const before = await harness.fingerprint();
    await admin.stats({ done: true });
    const { next } = await admin.list({ limit: 1 });
    await admin.list({ limit: 1, after: next as string });
    await admin.get("pending");
    await admin.audit();
    await admin.dryRun("retry", {});
    await admin.dryRun("replay", { ids: ["done"] });
    for (const status of ["pending", "waiting", "scheduled", "parked"] as const)
      await admin.dryRun("discard", { status });
    await expect(admin.discard({ status: "pending" }, { by: "ann" })).rejects.toMatchObject({ code: "option-invalid" });
    expect(await harness.fingerprint()).toBe(before);
    await commit(harness, testMessage("one more"));
    expect(await harness.fingerprint()).not.toBe(before);
  });
}
