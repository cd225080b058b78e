import { inboxOf, type Message, type Store } from "postbox";
import { type Aside, laneCount, type Row } from "postbox/store";
import { describe, expect } from "vitest";
import { gate } from "../gate.js";
import { testMessage, testMessages } from "../messages.js";
import { arrivalOf, remember, remembering } from "./remembering.js";
import type { StoreFact } from "./store-facts.js";
import { emptyBox, type StoreHarness } from "./store-harness.js";

const consumer = "billing";
const box = inboxOf(consumer);
const ann = { by: "ann" };

/** The box of a consumer: messages are stored once, set aside, and removed in the handler's transaction. */
export function keptFacts<Tx>(fact: StoreFact<Tx>): void {
  const keep = (store: Store<Tx>, ...messages: Message[]) =>
    store.inbox.keep(
      messages.map((message) => arrivalOf(consumer, message)),
      remembering,
    );
  const setAside = (store: Store<Tx>, message: Message, aside: Aside) =>
    store.inbox.setAside(arrivalOf(consumer, message), aside, remembering);
  const later: Aside = { to: "wait", attempts: 1, retryInMs: 60_000, error: "not now" };
  const never: Aside = { to: "parked", attempts: 1, error: "never" };

  /** Owns all lanes of the box, and reads its rows. */
  async function owned({ store }: StoreHarness<Tx>, owner = "me") {
    const own = store.box(box);
    await own.renew(owner, 60_000, "key");
    const epochs = new Map((await own.own(owner, laneCount)).map(({ lane, epoch }) => [lane, epoch]));
    const lanes = [...epochs.keys()].map((lane) => ({ lane, limit: 100 }));
    const rows = [...(await own.read(lanes)).rows, ...(await own.due(lanes))];
    const epochOf = ({ lane }: Row) => epochs.get(lane) ?? 0;
    return { own, rows, epochOf, due: () => own.due(lanes) };
  }
  /** What happens at the end of a handler. */
  const finish = (store: Store<Tx>, row: Row, epoch: number, then: (tx: Tx) => Promise<void> = async () => {}) =>
    store.transaction(async (tx) => {
      const handled = await store.inbox.handled(tx, arrivalOf(consumer, row.message), row, epoch);
      await then(tx);
      return handled;
    });

  describe("an inbox stores", () => {
    fact("new messages, in order, and none twice", async ({ store, contents, another }) => {
      const messages = testMessages("m", 5, { key: "k" });
      expect(await keep(store, ...messages.slice(0, 3))).toEqual(["new", "new", "new"]);
      expect(await keep(another(), ...messages.slice(1).reverse())).toEqual(["new", "new", "duplicate", "duplicate"]);
      expect((await contents(box)).pending).toEqual(["m-0", "m-1", "m-2", "m-4", "m-3"]);
      expect(await keep(store)).toEqual([]);
    });

    fact("a message as it was received", async (harness) => {
      const message = testMessage("full", {
        key: "k",
        subject: "s",
        time: new Date(),
        headers: { h: "ü" },
        extensions: { correlationid: "c", dataversion: "2" },
        data: Uint8Array.of(0, 1, 255),
      });
      await keep(harness.store, message);
      const { rows } = await owned(harness);
      expect({ ...rows[0]?.message, data: [0, 1, 255] }).toEqual({ ...message, data: [0, 1, 255] });
      expect([...(rows[0]?.message.data ?? [])]).toEqual([0, 1, 255]);
    });

    fact("for each consumer, separate from the others and from the outbox", async ({ store, contents }) => {
      const message = testMessage("m");
      await keep(store, message);
      const forShipping = arrivalOf("shipping", message);
      expect(await store.inbox.keep([forShipping], remembering)).toEqual(["new"]);
      expect((await contents(box)).pending).toEqual(["m"]);
      expect((await contents(inboxOf("shipping"))).pending).toEqual(["m"]);
      expect(await contents("outbox")).toEqual(emptyBox);
      for (const name of [box, inboxOf("shipping")]) {
        expect((await store.admin.stats({ box: name })).pending.count).toBe(1);
        expect((await store.admin.stats({ box: name })).lanes.unowned).toBe(laneCount);
        await store.box(name).renew(`of ${name}`, 60_000, "key");
        expect(await store.box(name).own(`of ${name}`, 2 * laneCount)).toHaveLength(laneCount);
      }
    });

    fact("for any number of consumers, whose instances may share a name", async ({ store, another }) => {
      const names = Array.from({ length: 12 }, (_, index) => inboxOf(`consumer-${index}`));
      const boxes = [...names, ...names].map((name) => another().box(name));
      // Two instances of each consumer start at once.
      await Promise.all(boxes.map((one) => one.renew("one name", 60_000, "key")));
      const owned = await Promise.all(boxes.map((one) => one.own("one name", laneCount)));
      const lanes = owned.flat();
      expect(lanes).toHaveLength(names.length * laneCount);
      expect(new Set(lanes.map(({ lane }) => lane))).toEqual(new Set(Array.from({ length: laneCount }, (_, n) => n)));
      expect((await store.admin.boxes()).slice().sort()).toEqual(expect.arrayContaining([...names].sort()));
      for (const name of names) {
        expect((await store.box(name).renew("one name", 60_000, "key")).others).toEqual([]);
        expect((await store.admin.stats({ box: name })).lanes).toEqual({
          unowned: 0,
          owners: [{ owner: "one name", lanes: laneCount, lives: true }],
        });
      }
    });

    fact("for a consumer of any name", async ({ store }) => {
      const odd = `it's "\\ / ünïcode; -- $1`;
      expect(await store.inbox.keep([arrivalOf(odd, testMessage("m"))], remembering)).toEqual(["new"]);
      const { messages } = await store.admin.list({ box: inboxOf(odd) });
      expect(messages.map(({ id, status }) => [id, status])).toEqual([["m", "pending"]]);
      await store.admin.pause({ ...ann, box: inboxOf(odd) });
      expect((await store.admin.stats({ box: inboxOf(odd) })).paused).toBe(true);
    });

    fact("no handled message, and does not handle stored ones", async ({ store, contents }) => {
      const [handled, kept] = testMessages("m", 2) as [Message, Message];
      await store.transaction((tx) => remember(store, tx, consumer, handled));
      expect(await keep(store, handled, kept)).toEqual(["duplicate", "new"]);
      const again = store.transaction((tx) => remember(store, tx, consumer, kept));
      expect(await again).toBe("duplicate");
      expect((await contents(box)).pending).toEqual(["m-1"]);
    });

    fact(
      "nothing while a handler has the same message, and waits no longer than its timeout",
      "concurrentTransactions",
      async (harness) => {
        const { store } = harness;
        const [remembered, go] = [gate(), gate()];
        const message = testMessage("m");
        const first = store.transaction(async (tx) => {
          await remember(store, tx, consumer, message);
          remembered.open();
          await go.opened;
        });
        await Promise.race([remembered.opened, first]);
        const impatient = { ...remembering, lockTimeoutMs: 50 };
        const arrival = arrivalOf(consumer, message);
        const busy = expect.objectContaining({ code: "inbox-busy" });
        await expect(store.inbox.keep([arrival], impatient)).rejects.toEqual(busy);
        await expect(store.inbox.setAside(arrival, later, impatient)).rejects.toEqual(busy);
        await expect(store.transaction((tx) => store.inbox.remember(tx, arrival, impatient))).rejects.toEqual(busy);
        go.open();
        await first;
        expect(await keep(store, message)).toEqual(["duplicate"]);
      },
    );

    fact("a message that differs from the known one, for an operator", async ({ store, contents }) => {
      const arrival = (hash: string) => arrivalOf(consumer, testMessage("m"), { hash });
      expect(await store.inbox.keep([arrival("one")], remembering)).toEqual(["new"]);
      expect(await store.inbox.keep([arrival("one")], remembering)).toEqual(["duplicate"]);
      expect(await store.inbox.keep([arrival("two")], remembering)).toEqual(["differs"]);
      const handle = (hash: string) => store.transaction((tx) => store.inbox.remember(tx, arrival(hash), remembering));
      expect(await handle("one")).toBe("duplicate");
      expect(await handle("two")).toBe("differs");
      expect(await store.inbox.setAside(arrival("two"), never, remembering)).toBe("differs");
      expect((await contents(box)).parked).toEqual([]);
      await store.inbox.setAside(arrival("two"), { ...never, anyway: true }, remembering);
      expect((await contents(box)).parked).toEqual([{ id: "m", error: "never" }]);
    });

    fact("no message older than its retention: one second more, and one less", async ({ store, contents }) => {
      const aged = (id: string, ms: number) => testMessage(id, { time: new Date(Date.now() - ms) });
      const { retentionMs } = remembering;
      const [old, young] = [aged("old", retentionMs + 1_000), aged("young", retentionMs - 1_000)];
      expect(await keep(store, old, young)).toEqual(["too-old", "new"]);
      expect(await store.transaction((tx) => remember(store, tx, "shipping", old))).toBe("too-old");
      expect(await store.transaction((tx) => remember(store, tx, "shipping", young))).toBe("new");
      expect(await setAside(store, aged("older", 2 * retentionMs), never)).toBe("too-old");
      await setAside(store, aged("oldest", 3 * retentionMs), { ...never, anyway: true });
      const { pending, parked } = await contents(box);
      expect([pending, parked]).toEqual([["young"], [{ id: "oldest", error: "never" }]]);
    });
  });

  describe("an inbox forgets", () => {
    const day = 24 * 3_600_000;
    const retentionMs = 30 * day;
    const handle = (store: Store<Tx>, message: Message, name = consumer) =>
      store.transaction((tx) => remember(store, tx, name, message));

    /** An existing inbox, and messages of so many days ago by the database's clock. */
    async function inbox({ store, now }: StoreHarness<Tx>) {
      await store.box(box).release("nobody");
      return {
        aged: (id: string, days: number) => testMessage(id, { time: new Date(now() - days * day) }),
        forget: () => store.purge({ box, retentionMs }),
      };
    }

    fact("ids after the retention, and none earlier", async (harness) => {
      const { store } = harness;
      const { forget } = await inbox(harness);
      const ages = [75, 45, 31, 29, 1, 0];
      for (const [index, days] of ages.entries()) {
        await handle(store, testMessage(`${days}`));
        await harness.advance((days - (ages[index + 1] ?? 0)) * day);
      }
      expect(await forget()).toMatchObject({ busy: false, removed: 3 });
      const answers = await keep(store, ...ages.map((days) => testMessage(`${days}`)));
      expect(answers).toEqual(["new", "new", "new", "duplicate", "duplicate", "duplicate"]);
    });

    fact("an id by its arrival, whatever the times of its copies", async (harness) => {
      const { store } = harness;
      const { aged, forget } = await inbox(harness);
      expect(await handle(store, aged("m", 29))).toBe("new");
      expect(await keep(store, aged("kept", 29))).toEqual(["new"]);
      await harness.advance(29 * day);
      await forget();
      for (const copy of [aged("m", 0), aged("m", 20), aged("m", 58), aged("m", -20), testMessage("m")]) {
        expect(await handle(store, copy)).toBe("duplicate");
        expect(await keep(store, copy, { ...copy, id: "kept" })).toEqual(["duplicate", "duplicate"]);
      }
      await harness.advance(2 * day);
      await forget();
      expect(await handle(store, aged("m", 0))).toBe("new");
      expect(await keep(store, aged("kept", 60))).toEqual(["too-old"]);
    });

    fact("a message from the future by its own time", async (harness) => {
      const { store } = harness;
      const { aged, forget } = await inbox(harness);
      expect(await handle(store, aged("m", -40))).toBe("new");
      expect(await keep(store, aged("kept", -40))).toEqual(["new"]);
      await harness.advance(69 * day);
      await forget();
      expect(await keep(store, aged("m", 29), aged("kept", 29))).toEqual(["duplicate", "duplicate"]);
      await harness.advance(2 * day);
      await forget();
      expect(await keep(store, aged("m", 31), aged("kept", 31))).toEqual(["too-old", "too-old"]);
    });

    fact("and accepts no message as new that it may have forgotten", async (harness) => {
      const { store } = harness;
      const { aged } = await inbox(harness);
      expect(await handle(store, aged("known", 25))).toBe("new");
      await store.purge({ box: inboxOf("other"), retentionMs: day });
      expect(await handle(store, aged("another", 25))).toBe("new");
      await store.purge({ box, retentionMs: day });
      expect(await handle(store, aged("old", 25))).toBe("too-old");
      expect(await keep(store, aged("old", 25))).toEqual(["too-old"]);
      // It still remembers this id, so the age does not matter.
      expect(await handle(store, aged("known", 25))).toBe("duplicate");
      expect(await keep(store, aged("known", 25))).toEqual(["duplicate"]);
    });

    fact("nothing early when the database's clock is set", async (harness) => {
      const { store } = harness;
      const { aged, forget } = await inbox(harness);
      expect(await keep(store, aged("m", 0))).toEqual(["new"]);
      for (const days of [27, -37, 10]) {
        await harness.advance(days * day);
        await forget();
      }
      expect(await handle(store, aged("m", 0))).toBe("duplicate");
      // So far in the future that it is forgotten. When the clock is right again, it is too old, not new.
      await harness.advance(31 * day);
      await forget();
      await harness.advance(-31 * day);
      expect(await handle(store, aged("m", 0))).toBe("too-old");
      expect(await handle(store, aged("later", -2))).toBe("new");
    });

    fact("nothing of another consumer", async (harness) => {
      const { store } = harness;
      const message = testMessage("m");
      for (const name of ["shipping", "other"]) {
        await store.box(inboxOf(name)).release("nobody");
        await handle(store, message, name);
      }
      await harness.advance(2 * day);
      expect(await store.purge({ box: inboxOf("other"), retentionMs: day })).toMatchObject({ removed: 1 });
      expect([await handle(store, message, "shipping"), await handle(store, message, "other")]).toEqual([
        "duplicate",
        "new",
      ]);
    });
  });

  describe("an inbox sets aside", () => {
    fact("a failed message until it is due, with its reason", async (harness) => {
      const { store, contents } = harness;
      expect(await setAside(store, testMessage("m", { key: "k" }), later)).toBe("new");
      expect(await setAside(store, testMessage("m", { key: "k" }), later)).toBe("duplicate");
      expect(await contents(box)).toEqual({ ...emptyBox, wait: ["m"], holds: ["k"] });
      const { rows, due } = await owned(harness);
      expect(rows).toEqual([]);
      const [shown] = (await store.admin.list({ box })).messages;
      expect(shown).toMatchObject({ status: "waiting", attempts: 1, lastError: "not now" });
      expect((await store.admin.get("m", { box }))[0]?.failures).toMatchObject([{ attempt: 1, error: "not now" }]);
      await harness.advance(60_000);
      expect((await due()).map(({ message, attempts }) => [message.id, attempts])).toEqual([["m", 1]]);
    });

    fact("a permanently failed message, which an operator can retry", async (harness) => {
      const { store, contents } = harness;
      await setAside(store, testMessage("m"), never);
      expect(await contents(box)).toEqual({ ...emptyBox, parked: [{ id: "m", error: "never" }] });
      expect(await keep(store, testMessage("m"))).toEqual(["duplicate"]);
      expect(await store.admin.retry({ box, ids: ["m"] }, ann)).toEqual({ count: 1 });
      expect((await contents(box)).pending).toEqual(["m"]);
      expect(await store.admin.audit({ box })).toMatchObject([{ action: "retry", by: "ann", ids: ["m"] }]);
    });

    fact("a message behind others of its key, which stays due when it was", async (harness) => {
      const { store } = harness;
      await setAside(store, testMessage("first", { key: "k" }), later);
      await setAside(store, testMessage("sooner", { key: "k" }), { ...later, retryInMs: 1 });
      await setAside(store, testMessage("later", { key: "k" }), { ...later, retryInMs: 3_600_000 });
      await harness.advance(30_000);
      const { rows, due } = await owned(harness);
      expect(rows).toEqual([]);
      await harness.advance(30_000);
      expect((await due()).map(({ message }) => message.id)).toEqual(["first", "sooner", "later"]);
    });
  });

  describe("a stored message is handled", () => {
    fact("once, with everything else in its transaction", async (harness) => {
      const { store, effect, effects, contents } = harness;
      await keep(store, testMessage("m", { key: "k" }));
      const { rows, epochOf } = await owned(harness);
      const row = rows[0] as Row;
      const failing = finish(store, row, epochOf(row), async (tx) => {
        await effect(tx, "rolled back");
        throw new Error("no stock");
      });
      await expect(failing).rejects.toThrow("no stock");
      expect((await contents(box)).pending).toEqual(["m"]);
      expect(await finish(store, row, epochOf(row), (tx) => effect(tx, "handled"))).toBe(true);
      expect(await effects()).toEqual(["handled"]);
      expect(await contents(box)).toEqual({ ...emptyBox, done: ["m"] });
      expect(await finish(store, row, epochOf(row))).toBe(false);
      const { messages } = await store.admin.list({ box, status: "done" });
      expect(messages).toMatchObject([{ id: "m", status: "done", publishedAt: expect.any(Date) }]);
      expect((await store.admin.stats({ box, done: true })).done?.count).toBe(1);
    });

    fact("not by an instance that has lost the lane", async (harness) => {
      const { store, contents } = harness;
      await keep(store, testMessage("m", { key: "k" }));
      const { rows, epochOf } = await owned(harness);
      const row = rows[0] as Row;
      await harness.advance(60_000);
      await owned(harness, "another");
      expect(await finish(store, row, epochOf(row))).toBe(false);
      expect((await contents(box)).pending).toEqual(["m"]);
    });

    fact("even after it has waited, and its key continues then", async (harness) => {
      const { store, contents } = harness;
      await setAside(store, testMessage("first", { key: "k" }), { ...later, retryInMs: 0 });
      const { own, rows, epochOf } = await owned(harness);
      const row = rows[0] as Row;
      expect(row.waiting).toBe(true);
      expect(await finish(store, row, epochOf(row))).toBe(true);
      await own.settle([{ lane: row.lane, epoch: epochOf(row) }], [{ row, to: "sent" }]);
      expect(await contents(box)).toEqual({ ...emptyBox, done: ["first"] });
    });

    fact("in its turn: settling one does not release those that still wait", async (harness) => {
      const { store, contents } = harness;
      for (const id of ["first", "second"])
        await setAside(store, testMessage(id, { key: "k" }), { ...later, retryInMs: 0 });
      const { own, rows, epochOf } = await owned(harness);
      const row = rows[0] as Row;
      await finish(store, row, epochOf(row));
      await own.settle([{ lane: row.lane, epoch: epochOf(row) }], [{ row, to: "sent" }]);
      expect(await contents(box)).toMatchObject({ wait: ["second"], holds: ["k"], done: ["first"] });
    });

    fact("by another instance when an operator takes it from a stuck one", async (harness) => {
      const { store } = harness;
      await keep(store, testMessage("m", { key: "k" }));
      const { rows, epochOf } = await owned(harness);
      const row = rows[0] as Row;
      const stuck = { box, status: "pending" as const, createdBefore: new Date(Date.now() + 1_000) };
      const { confirm, count } = await store.admin.dryRun("retry", stuck);
      expect(count).toBe(1);
      expect(await store.admin.retry(stuck, { ...ann, confirm })).toEqual({ count: 1 });
      expect(await finish(store, row, epochOf(row))).toBe(false);
      await store.box(box).renew("another", 60_000, "key");
      const taken = await store.box(box).own("another", laneCount);
      expect(taken.map(({ lane }) => lane)).toEqual([row.lane]);
      expect(await finish(store, row, taken[0]?.epoch ?? 0)).toBe(true);
    });

    fact("now instead of later, if an operator retries it", async (harness) => {
      const { store } = harness;
      await setAside(store, testMessage("m", { key: "k" }), { ...later, attempts: 3 });
      expect(await store.admin.retry({ box, ids: ["m"], status: "waiting" }, ann)).toEqual({ count: 1 });
      const { rows } = await owned(harness);
      expect(rows.map(({ message, attempts }) => [message.id, attempts])).toEqual([["m", 0]]);
      expect(await store.admin.audit({ box })).toMatchObject([{ action: "retry", ids: ["m"] }]);
    });

    fact("and cannot be replayed, since an inbox keeps no sent messages", async ({ store }) => {
      const refused = expect.objectContaining({ code: "option-invalid" });
      await expect(store.admin.replay({ box, ids: ["m"] }, ann)).rejects.toEqual(refused);
      await expect(store.admin.stats({ box: inboxOf("nobody") })).rejects.toMatchObject({
        code: "option-invalid",
        path: "box",
      });
    });
  });
}
