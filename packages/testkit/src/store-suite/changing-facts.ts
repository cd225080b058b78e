import type { Settlement } from "postbox/store";
import { describe, expect } from "vitest";
import { comparable, testMessage, testMessages } from "../messages.js";
import { commit, ids, join, outbox, readAll, rowOf } from "./box-access.js";
import { ann, oneOfEach, operatedBox } from "./operated-box.js";
import type { StoreFact } from "./store-facts.js";

const behind = { to: "wait", attempts: 0 } as const;
const holding = { to: "parked", attempts: 3, error: "never", hold: true } as const;
/** Facts do not wait for the pace of a replay. */
const atOnce = { ...ann, perSecond: 1_000_000_000 };
const unconfirmed = { code: "option-invalid", path: "confirm" };

/** An operator's change affects exactly what was selected, together with its entry in the audit. */
export function changingFacts<Tx>(fact: StoreFact<Tx>): void {
  const inKey = (key: string, ...names: readonly string[]) => names.map((name) => testMessage(name, { key }));
  const names = (messages: readonly { readonly id: string }[]) => messages.map(({ id }) => id);

  fact("the audit has the operator and the reason, without control characters", async (harness) => {
    const { park } = await operatedBox(harness);
    const hostile = { by: "an\u001b[2Jn", reason: "a\u009b31mb\u0007" };
    await park("never", testMessage("m1"), testMessage("m2"));
    await harness.store.admin.retry({ ids: ["m1"] }, hostile);
    await harness.store.admin.pause(hostile);
    await harness.store.admin.resume({ by: "a\u0085n" });
    const entries = await harness.store.admin.audit();
    expect(entries.map(({ by, reason }) => [by, reason])).toEqual([
      ["a n", undefined],
      ["an [2Jn", "a 31mb "],
      ["an [2Jn", "a 31mb "],
    ]);
  });

  describe("retry", () => {
    fact("appends a parked message again: same id, no attempts, its history kept", async (harness) => {
      const { park, read } = await operatedBox(harness);
      const m1 = testMessage("m1", { key: "k" });
      await park("never", m1);
      await commit(harness, testMessage("m2", { key: "k" }));
      expect(await harness.store.admin.retry({ ids: ["m1"] }, ann)).toEqual({ count: 1 });
      const rows = await read();
      expect(rows.map((row) => [row.message.id, row.attempts, row.waiting, row.held])).toEqual([
        ["m2", 0, false, false],
        ["m1", 0, false, false],
      ]);
      expect(comparable(rowOf(rows, "m1").message)).toEqual(comparable(m1));
      expect(await harness.contents(outbox)).toMatchObject({ pending: ["m2", "m1"], parked: [] });
      const [found] = await harness.store.admin.get("m1");
      expect(found).toMatchObject({ status: "pending", attempts: 0, failures: [{ attempt: 3, error: "never" }] });
    });

    fact("returns a message of a held key to its place before those that wait, and they continue", async (harness) => {
      const { settle, read } = await operatedBox(harness);
      await commit(harness, ...inKey("k", "m1", "m2", "m3"), ...inKey("other", "o1"));
      await settle("m1", holding);
      await settle("m2", behind);
      expect(ids(await read())).toEqual(["m3", "o1"]);
      expect(await harness.store.admin.retry({ ids: ["m1"] }, ann)).toEqual({ count: 1 });
      const rows = await read();
      expect(rows.map((row) => [row.message.id, row.attempts, row.waiting, row.held])).toEqual([
        ["m1", 0, true, false],
        ["m2", 0, true, false],
        ["m3", 0, false, true],
        ["o1", 0, false, false],
      ]);
      expect((await harness.contents(outbox)).parked).toEqual([]);
      for (const id of ["m1", "m2"]) await settle(id, { to: "sent" });
      expect(await harness.contents(outbox)).toMatchObject({ pending: ["m3", "o1"], wait: [], holds: [] });
    });

    fact("keeps the delay that another failure of the key has set", async (harness) => {
      const { settle, fail, read } = await operatedBox(harness);
      await commit(harness, ...inKey("k", "m1"));
      await settle("m1", { to: "parked", attempts: 3, error: "never" });
      await fail("not now", ...inKey("k", "m2"));
      expect(await read()).toEqual([]);
      await harness.store.admin.retry({ ids: ["m1"] }, ann);
      expect(await read()).toEqual([]);
      await harness.advance(3_600_001);
      expect(ids(await read())).toEqual(["m1", "m2"]);
    });

    fact("of a message that does not hold its key leaves the key held", async (harness) => {
      const { settle, read } = await operatedBox(harness);
      await commit(harness, ...inKey("k", "m1", "m2", "m3"));
      await settle("m1", { to: "parked", attempts: 3, error: "never" });
      await settle("m2", holding);
      await settle("m3", behind);
      await harness.store.admin.retry({ ids: ["m1"] }, ann);
      expect(await read()).toEqual([]);
      await harness.store.admin.discard({ ids: ["m2"] }, ann);
      expect(ids(await read())).toEqual(["m1", "m3"]);
    });

    fact("is not undone by a settle that is repeated because its answer was lost", async (harness) => {
      const { box, lanes, settle, read } = await operatedBox(harness);
      await commit(harness, ...inKey("k", "m1", "m2"));
      await settle("m1", { to: "wait", attempts: 1, retryInMs: 0, error: "not now" });
      await settle("m2", behind);
      const lost: Settlement = { ...holding, row: rowOf(await read(), "m1") };
      await box.settle(lanes, [lost]);
      await harness.store.admin.retry({ ids: ["m1"] }, ann);
      await box.settle(lanes, [lost]);
      expect((await harness.contents(outbox)).parked).toEqual([]);
      expect(ids(await read())).toEqual(["m1", "m2"]);
    });

    fact("makes a waiting message due now; once it is sent, it shows no due time", async (harness) => {
      const { box, lanes, fail } = await operatedBox(harness);
      await fail("not now", testMessage("m"));
      expect(await harness.store.admin.retry({ ids: ["m"], status: "waiting" }, ann)).toEqual({ count: 1 });
      const rows = await box.due(lanes.map(({ lane }) => ({ lane, limit: 10 })));
      expect(ids(rows)).toEqual(["m"]);
      const sent = rows.map((row) => ({ row, to: "sent" }) as const);
      await box.settle(lanes, sent, { keep: true });
      const { messages } = await harness.store.admin.list({ status: "done" });
      expect(messages).toHaveLength(1);
      expect(messages[0]).not.toHaveProperty("dueAt");
    });

    fact("ignores messages that are not parked, and does not count missing ones", async (harness) => {
      await oneOfEach(harness);
      const all = ["pending", "waiting", "scheduled", "parked", "done", "nobody"];
      expect(await harness.store.admin.retry({ ids: all }, ann)).toEqual({ count: 1 });
      expect(await harness.contents(outbox)).toMatchObject({
        pending: ["pending", "parked"],
        wait: ["waiting"],
        scheduled: ["scheduled"],
        parked: [],
        done: ["done"],
      });
      const before = await harness.fingerprint();
      expect(await harness.store.admin.retry({ ids: ["nobody"] }, ann)).toEqual({ count: 0 });
      expect(await harness.store.admin.retry({ ids: [] }, ann)).toEqual({ count: 0 });
      expect(await harness.fingerprint()).toBe(before);
    });

    fact("narrows ids by all other fields", async (harness) => {
      const { park } = await operatedBox(harness);
      await park("never", testMessage("a", { topic: "a" }), testMessage("b", { topic: "b" }));
      expect(await harness.store.admin.retry({ ids: ["a", "b"], topic: "b" }, ann)).toEqual({ count: 1 });
      expect((await harness.contents(outbox)).pending).toEqual(["b"]);
    });

    fact("without ids needs the token of a dry run, and affects only what that has counted", async (harness) => {
      const { admin } = harness.store;
      const { park } = await operatedBox(harness);
      const topic = "t";
      await park("never", ...testMessages("m", 3, { topic }), testMessage("other", { topic: "o" }));
      await expect(admin.retry({ topic }, ann)).rejects.toMatchObject(unconfirmed);
      await expect(admin.retry({}, ann)).rejects.toMatchObject(unconfirmed);
      const { count, confirm } = await admin.dryRun("retry", { topic });
      expect(count).toBe(3);
      await park("never", testMessage("late", { topic }));
      await expect(admin.retry({ topic, type: "x" }, { ...ann, confirm })).rejects.toMatchObject(unconfirmed);
      await expect(admin.discard({ topic }, { ...ann, confirm })).rejects.toMatchObject(unconfirmed);
      expect(await admin.retry({ topic }, { ...ann, confirm })).toEqual({ count: 3 });
      const { pending, parked } = await harness.contents(outbox);
      expect({ pending, parked: names(parked) }).toEqual({
        pending: ["m-0", "m-1", "m-2"],
        parked: ["other", "late"],
      });
      expect(await admin.retry({ topic }, { ...ann, confirm })).toEqual({ count: 0 });
    });

    fact("changes at most as many as the limit of its dry run, the first ones", async (harness) => {
      const { admin } = harness.store;
      const { park } = await operatedBox(harness);
      await park("never", ...testMessages("m", 5));
      const { count, confirm } = await admin.dryRun("retry", {}, { limit: 2 });
      expect(count).toBe(2);
      expect(await admin.retry({}, { ...ann, confirm })).toEqual({ count: 2 });
      expect((await harness.contents(outbox)).pending).toEqual(["m-0", "m-1"]);
      const none = await admin.dryRun("retry", { type: "none" });
      expect(none.count).toBe(0);
      await park("never", testMessage("n", { type: "none" }));
      expect(await admin.retry({ type: "none" }, { ...ann, confirm: none.confirm })).toEqual({ count: 0 });
    });

    fact("changes no more than were counted, even if earlier ones are parked meanwhile", async (harness) => {
      const { admin } = harness.store;
      const { settle } = await operatedBox(harness);
      await commit(harness, ...testMessages("m", 4));
      const parked = { to: "parked", attempts: 1, error: "never" } as const;
      for (const id of ["m-2", "m-3"]) await settle(id, parked);
      const { confirm } = await admin.dryRun("retry", {});
      for (const id of ["m-0", "m-1"]) await settle(id, parked);
      expect(await admin.retry({}, { ...ann, confirm })).toEqual({ count: 2 });
      expect((await harness.contents(outbox)).parked).toHaveLength(2);
    });

    fact("gives each message to one of several concurrent calls", "concurrentTransactions", async (harness) => {
      const { park } = await operatedBox(harness);
      await park("never", ...testMessages("m", 50));
      const { confirm } = await harness.store.admin.dryRun("retry", {});
      const done = await Promise.all(
        Array.from({ length: 4 }, () => harness.another().admin.retry({}, { ...ann, confirm })),
      );
      expect(done.reduce((sum, { count }) => sum + count, 0)).toBe(50);
      const { pending, parked } = await harness.contents(outbox);
      expect([...pending].sort()).toEqual(names(testMessages("m", 50)).sort());
      expect(parked).toEqual([]);
    });
  });

  describe("discard", () => {
    for (const status of ["pending", "waiting", "scheduled", "parked"] as const) {
      fact(`removes ${status} messages for good, with an entry in the audit`, async (harness) => {
        const { read } = await oneOfEach(harness);
        const all = ["pending", "waiting", "scheduled", "parked", "done"];
        expect(await harness.store.admin.discard({ ids: all, status }, ann)).toEqual({ count: 1 });
        const left = (await harness.store.admin.list()).messages.map((each) => each.id);
        expect(left).toEqual(all.filter((each) => each !== status));
        const [entry] = await harness.store.admin.audit();
        expect(entry).toMatchObject({ action: "discard", ...ann, count: 1, ids: [status], selection: { status } });
        await harness.advance(7_200_000);
        await harness.store.box(outbox).promote(10);
        expect(ids(await read())).not.toContain(status);
      });
    }

    fact("affects parked messages by default, and never those that are done", async (harness) => {
      const { admin } = harness.store;
      await oneOfEach(harness);
      const { count, confirm } = await admin.dryRun("discard", {});
      expect(count).toBe(1);
      await expect(admin.discard({ status: "pending" }, { ...ann, confirm })).rejects.toMatchObject(unconfirmed);
      await expect(admin.discard({ ids: ["done"], status: "done" as never }, ann)).rejects.toMatchObject({
        code: "option-invalid",
        path: "status",
      });
      expect(await admin.discard({}, { ...ann, confirm })).toEqual({ count: 1 });
      expect((await admin.list()).messages.map(({ id }) => id)).toEqual(["pending", "waiting", "scheduled", "done"]);
    });

    fact("of the first waiting message lets those behind it continue; of a later one does not", async (harness) => {
      const { settle, fail, read } = await operatedBox(harness);
      await fail("not now", ...inKey("k", "m1"));
      await commit(harness, ...inKey("k", "m2", "m3"));
      await settle("m2", behind);
      await settle("m3", behind);
      await harness.store.admin.discard({ ids: ["m2"], status: "waiting" }, ann);
      expect(ids(await read())).toEqual([]);
      await harness.store.admin.discard({ ids: ["m1"], status: "waiting" }, ann);
      expect(ids(await read())).toEqual(["m3"]);
    });

    fact("of a parked message that holds its key releases it, unless another one holds it too", async (harness) => {
      const { settle, read } = await operatedBox(harness);
      await commit(harness, ...inKey("k", "m1", "m2", "m3"));
      await settle("m1", holding);
      await settle("m2", holding);
      await settle("m3", behind);
      await harness.store.admin.discard({ ids: ["m1"] }, ann);
      expect(ids(await read())).toEqual([]);
      await harness.store.admin.discard({ ids: ["m2"] }, ann);
      expect(ids(await read())).toEqual(["m3"]);
    });

    fact("of the last waiting message leaves nothing stuck behind it", async (harness) => {
      const { fail, read, settle } = await operatedBox(harness);
      await fail("not now", ...inKey("k", "m1"));
      await harness.store.admin.discard({ ids: ["m1"], status: "waiting" }, ann);
      await commit(harness, ...inKey("k", "m2"));
      await harness.advance(3_600_001);
      if (rowOf(await read(), "m2").held) await settle("m2", behind);
      expect((await read()).map((row) => [row.message.id, row.held])).toEqual([["m2", false]]);
    });

    fact("of many waiting messages keeps no other from being retried", async (harness) => {
      const { fail, settle, box, lanes } = await operatedBox(harness);
      const many = Array.from({ length: 300 }, (_, n) => testMessage(`gone-${n}`));
      await fail("not now", ...many);
      const { confirm } = await harness.store.admin.dryRun("discard", { status: "waiting" });
      await harness.store.admin.discard({ status: "waiting" }, { ...ann, confirm });
      const left = Array.from({ length: 64 }, (_, n) => testMessage(`left-${n}`));
      await commit(harness, ...left);
      for (const { id } of left) await settle(id, { to: "wait", attempts: 1, retryInMs: 0, error: "not now" });
      const due = await box.due(lanes.map(({ lane }) => ({ lane, limit: 8 })));
      expect(ids(due).sort()).toEqual(names(left).sort());
      expect((await harness.contents(outbox)).holds).toHaveLength(left.length);
    });

    fact("confirmed by a dry run removes what that has counted, not later messages", async (harness) => {
      const { admin } = harness.store;
      const { settle } = await operatedBox(harness);
      await commit(harness, testMessage("early"), testMessage("late"));
      await settle("late", { to: "parked", attempts: 1, error: "never" });
      const { count, confirm } = await admin.dryRun("discard", {});
      expect(count).toBe(1);
      await settle("early", { to: "parked", attempts: 1, error: "never" });
      expect(await admin.discard({}, { ...ann, confirm })).toEqual({ count: 1 });
      expect((await harness.contents(outbox)).parked).toMatchObject([{ id: "early" }]);
    });

    fact("is skipped by a relay that had it in flight", async (harness) => {
      const { box, lanes, read } = await operatedBox(harness);
      await commit(harness, testMessage("m1"), testMessage("m2"));
      const rows = await read();
      await harness.store.admin.discard({ ids: ["m1"], status: "pending" }, ann);
      const { standing } = await box.settle(
        lanes,
        rows.map((row) => ({ row, to: "parked" as const, attempts: 1, error: "late" })),
      );
      expect(standing.size).toBe(lanes.length);
      expect(names((await harness.contents(outbox)).parked)).toEqual(["m2"]);
    });
  });

  describe("replay", () => {
    fact("appends messages that are done again, in order, with the same ids; they stay done", async (harness) => {
      const { admin } = harness.store;
      const { finish, read } = await operatedBox(harness);
      const messages = testMessages("m", 600);
      await finish(...messages);
      const { count, confirm } = await admin.dryRun("replay", {});
      expect(count).toBe(600);
      await finish(testMessage("late"));
      expect(await admin.replay({}, { ...atOnce, confirm })).toEqual({ count: 600 });
      const { pending, done } = await harness.contents(outbox);
      expect(pending).toEqual(names(messages));
      expect(done).toEqual([...names(messages), "late"]);
      const [first] = await read();
      expect(comparable(first?.message ?? testMessage("none"))).toEqual(comparable(testMessage("m-0")));
      expect(first?.attempts).toBe(0);
      const entries = (await admin.audit()).filter(({ action }) => action === "replay");
      expect(entries.map((entry) => entry.count)).toEqual([100, 500]);
      expect(entries.reverse().flatMap((entry) => entry.ids)).toEqual(names(messages));
    });

    fact("with the same token again does nothing, and with another token sends each message once", async (harness) => {
      const { admin } = harness.store;
      const { finish, read, settle } = await operatedBox(harness);
      await finish(testMessage("a"), testMessage("b"));
      const { confirm } = await admin.dryRun("replay", {});
      await admin.replay({}, { ...atOnce, confirm });
      for (const id of ids(await read())) await settle(id, { to: "sent" }, { keep: true });
      expect((await harness.contents(outbox)).done).toEqual(["a", "b", "a", "b"]);
      expect(await admin.replay({}, { ...atOnce, confirm })).toEqual({ count: 0 });
      expect((await harness.contents(outbox)).pending).toEqual([]);
      const again = await admin.dryRun("replay", {});
      expect(again).toMatchObject({ count: 2, more: false });
      expect(await admin.replay({}, { ...atOnce, confirm: again.confirm })).toEqual({ count: 2 });
      expect((await harness.contents(outbox)).pending).toEqual(["a", "b"]);
    });

    fact("by ids appends just these; with an aborted signal, none", async (harness) => {
      const { admin } = harness.store;
      const { finish } = await operatedBox(harness);
      await finish(...testMessages("m", 3));
      const signal = AbortSignal.abort();
      expect(await admin.replay({ ids: ["m-0"] }, { ...atOnce, signal })).toEqual({ count: 0 });
      expect(await admin.replay({ ids: ["m-2", "m-1"] }, atOnce)).toEqual({ count: 2 });
      expect((await harness.contents(outbox)).pending).toEqual(["m-1", "m-2"]);
      await expect(admin.replay({ type: "t" }, atOnce)).rejects.toMatchObject(unconfirmed);
    });
  });

  describe("pause", () => {
    fact("takes no lane from its owner, and gives none to others, until it is resumed", async (harness) => {
      const { admin } = harness.store;
      const { box, lanes, read } = await operatedBox(harness);
      await box.release("relay-1", lanes.slice(0, 10));
      await admin.pause(ann);
      expect((await admin.stats()).paused).toBe(true);
      const { paused, lanes: own } = await box.renew("relay-1", 60_000, "key");
      expect({ paused, own: own.length }).toEqual({ paused: true, own: 54 });
      expect(await box.own("relay-1", 64)).toEqual([]);
      expect(await box.own("relay-1", 64, { least: 64 })).toEqual([]);
      const second = harness.another().box(outbox);
      expect(await join(second, "relay-2")).toEqual([]);
      await commit(harness, testMessage("m", { key: "k" }));
      expect(ids(await read())).toEqual(["m"]);
      expect((await box.settle(own, [])).standing.size).toBe(54);
      await admin.resume(ann);
      expect((await admin.stats()).paused).toBe(false);
      expect((await second.renew("relay-2", 60_000, "key")).paused).toBe(false);
      expect(await second.own("relay-2", 64)).toHaveLength(10);
    });

    fact("affects one box, in every process", async (harness) => {
      await harness.store.admin.pause({ ...ann, box: "inbox/other" });
      expect(await join(harness.another().box("inbox/other"), "relay-1")).toEqual([]);
      expect(await join(harness.another().box(outbox), "relay-1")).toHaveLength(64);
      expect((await harness.another().admin.stats({ box: "inbox/other" })).paused).toBe(true);
      expect((await harness.another().admin.stats()).paused).toBe(false);
    });
  });

  describe("release", () => {
    fact("lets a held key continue now, in order; others stay held", async (harness) => {
      const { admin } = harness.store;
      const { fail, read, settle } = await operatedBox(harness);
      await fail("not now", ...inKey("k", "m1"), ...inKey("other", "o1"));
      await commit(harness, ...inKey("k", "m2"));
      await settle("m2", behind);
      expect(await read()).toEqual([]);
      expect(await admin.release("k", ann)).toBe(true);
      expect(ids(await read())).toEqual(["m1", "m2"]);
      expect((await harness.contents(outbox)).wait).toEqual(["m1", "o1", "m2"]);
    });

    fact("of a key that a parked message holds lets those behind it continue", async (harness) => {
      const { read, settle } = await operatedBox(harness);
      await commit(harness, ...inKey("k", "m1", "m2", "m3"));
      await settle("m1", holding);
      await settle("m2", behind);
      expect(await harness.store.admin.release("k", ann)).toBe(true);
      expect((await read()).map((row) => [row.message.id, row.waiting, row.held])).toEqual([
        ["m2", true, false],
        ["m3", false, true],
      ]);
      expect(names((await harness.contents(outbox)).parked)).toEqual(["m1"]);
    });

    fact("of a key behind which nothing waits leaves nothing stuck", async (harness) => {
      const { read, settle } = await operatedBox(harness);
      await commit(harness, ...inKey("k", "m1"));
      await settle("m1", holding);
      await harness.store.admin.release("k", ann);
      await commit(harness, ...inKey("k", "m2", "m3"));
      // Rows that were read as held are queued behind, and are due at once.
      for (const row of await read()) if (row.held) await settle(row.message.id, behind);
      expect((await read()).map((row) => [row.message.id, row.held])).toEqual([
        ["m2", false],
        ["m3", false],
      ]);
      for (const id of ["m2", "m3"]) await settle(id, { to: "sent" });
      expect((await harness.contents(outbox)).holds).toEqual([]);
    });

    fact("of a key that is not held changes nothing", async (harness) => {
      await oneOfEach(harness);
      await commit(harness, ...inKey("k", "m1"));
      const before = await harness.fingerprint();
      expect(await harness.store.admin.release("k", ann)).toBe(false);
      expect(await harness.store.admin.release("waiting", ann)).toBe(false);
      expect(await harness.fingerprint()).toBe(before);
    });
  });

  describe("audit", () => {
    fact("has every change with operator, reason, selection and count, the newest first", async (harness) => {
      const { admin } = harness.store;
      const { park, fail, finish } = await operatedBox(harness);
      await park("never", ...testMessages("p", 3, { topic: "t" }));
      await fail("not now", testMessage("w", { key: "k" }));
      await finish(testMessage("d"));
      const createdFrom = new Date(0);
      const { confirm } = await admin.dryRun("retry", { topic: "t", createdFrom }, { limit: 2 });
      await admin.retry({ topic: "t", createdFrom }, { by: "ann", confirm });
      await admin.discard({ ids: ["p-2"] }, { by: "bob", reason: "a test order" });
      await admin.replay({ ids: ["d"] }, atOnce);
      await admin.pause(ann);
      await admin.resume(ann);
      await admin.release("k", ann);
      const entries = await admin.audit();
      const told = entries.map(({ action, by, reason, count, ids: changed }) => [action, by, reason, count, changed]);
      expect(told).toEqual([
        ["release", "ann", "a fact", 0, []],
        ["resume", "ann", "a fact", 0, []],
        ["pause", "ann", "a fact", 0, []],
        ["replay", "ann", "a fact", 1, ["d"]],
        ["discard", "bob", "a test order", 1, ["p-2"]],
        ["retry", "ann", undefined, 2, ["p-0", "p-1"]],
      ]);
      expect(entries[0]?.selection).toEqual({ key: "k" });
      expect(entries[4]?.selection).toEqual({ ids: ["p-2"], status: "parked" });
      const selection = { topic: "t", status: "parked", createdFrom: createdFrom.toISOString() };
      expect(entries[5]?.selection).toEqual(selection);
      expect(entries[1]).not.toHaveProperty("selection");
      expect(entries[5]).not.toHaveProperty("reason");
      for (const { at } of entries) expect(Math.abs(at.getTime() - Date.now())).toBeLessThan(600_000);
    });

    fact("is read page by page, for one box or for all", async (harness) => {
      const { admin } = harness.store;
      for (let n = 0; n < 3; n++) {
        await admin.pause({ by: `pauses ${n}` });
        await admin.resume({ by: `resumes ${n}` });
      }
      await admin.pause({ by: "elsewhere", box: "inbox/other" });
      const first = await admin.audit({ limit: 4, box: outbox });
      expect(first.map(({ by }) => by)).toEqual(["resumes 2", "pauses 2", "resumes 1", "pauses 1"]);
      const before = first.at(-1)?.number as number;
      const rest = await admin.audit({ limit: 4, before, box: outbox });
      expect(rest.map(({ by }) => by)).toEqual(["resumes 0", "pauses 0"]);
      const [newest, next] = await admin.audit({ limit: 2 });
      expect([newest, next]).toMatchObject([
        { by: "elsewhere", box: "inbox/other" },
        { by: "resumes 2", box: outbox },
      ]);
      expect((await admin.audit({ box: "inbox/other" })).map(({ by }) => by)).toEqual(["elsewhere"]);
    });

    fact("has what a relay has dropped, by reason, and nothing else remains of it", async (harness) => {
      const { box, lanes, read, settle } = await operatedBox(harness);
      await commit(harness, ...["a", "b", "c", "d"].map((id) => testMessage(id)));
      await settle("b", { to: "wait", attempts: 1, retryInMs: 0, error: "no" });
      const rows = (await read()).filter(({ message }) => message.id !== "c");
      const reasonOf = (id: string) => (id === "d" ? "unwanted" : "expired");
      const dropped = rows.map((row) => ({ row, to: "dropped" as const, reason: reasonOf(row.message.id) }));
      await box.settle(lanes, dropped, { keep: true });
      const nothing = { wait: [], holds: [], parked: [], done: [] };
      expect(await harness.contents(outbox)).toMatchObject({ pending: ["c"], ...nothing });
      await box.settle(lanes, dropped, { keep: true });
      const entries = await harness.store.admin.audit();
      const found = entries.map(({ action, by, reason, count, ids }) => [action, by, reason, count, [...ids].sort()]);
      expect(found.sort((a, b) => String(a[2]).localeCompare(String(b[2])))).toEqual([
        ["drop", "relay", "expired", 2, ["a", "b"]],
        ["drop", "relay", "unwanted", 1, ["d"]],
      ]);
      expect(ids(await readAll(box))).toEqual(["c"]);
    });
  });
}
