import { gate, settlesWithin, telemetryLog } from "@postbox/testkit";
import { createOutbox, defineEvent, type OutboxOptions } from "postbox";
import { memoryStore } from "postbox/memory";
import type { PublishMiddleware } from "postbox/middleware";
import { describe, expect, it } from "vitest";
import { z } from "zod";

const Placed = defineEvent({ type: "shop.Placed", schema: z.object({ n: z.number() }) });

it("stores published messages in the transaction, and reports how many", async () => {
  const store = memoryStore();
  const log = telemetryLog();
  const outbox = createOutbox(store, { source: "/orders", telemetry: log.telemetry });
  const ids = await store.transaction(async (tx) => {
    const publisher = outbox.in(tx);
    const one = await publisher.publish(Placed, { n: 1 });
    const many = await publisher.publishAll([Placed.message({ n: 2 }), Placed.message({ n: 3 })]);
    const raw = await publisher.send({ type: "raw.Bytes", data: Uint8Array.of(1) });
    expect(await publisher.publishAll([])).toEqual([]);
    return [one, ...many, raw].map(({ id }) => id);
  });
  expect(store.contents("outbox").pending.map(({ id }) => id)).toEqual(ids);
  expect(log.of("outbox.appended").map(({ count }) => count)).toEqual([1, 2, 1]);
});

it("rejects invalid data before it uses the transaction", async () => {
  const store = memoryStore();
  const outbox = createOutbox(store, { source: "/orders" });
  await store.transaction(async (tx) => {
    await expect(outbox.in(tx).publish(Placed, { n: "1" } as never)).rejects.toMatchObject({ code: "data-invalid" });
    await outbox.in(tx).publish(Placed, { n: 2 });
  });
  expect(store.contents("outbox").pending).toHaveLength(1);
});

it("rejects an ended transaction, or values that are none", async () => {
  const store = memoryStore();
  const outbox = createOutbox(store, { source: "/orders" });
  const ended = await store.transaction(async (tx) => tx);
  const notATransaction = { code: "not-a-transaction" };
  await expect(outbox.in(ended).publish(Placed, { n: 1 })).rejects.toMatchObject(notATransaction);
  await expect(outbox.in(undefined as never).publish(Placed, { n: 1 })).rejects.toMatchObject(notATransaction);
});

it("rejects unknown options", () => {
  expect(() => createOutbox(memoryStore(), { source: "/a", telemetri: () => {} } as never)).toThrow(
    "createOutbox: unknown option 'telemetri'; did you mean 'telemetry'?",
  );
});

it("serializes publishes to a key if asked to", async () => {
  const store = memoryStore();
  const keyed = { key: "k" };
  for (const strictKeyOrder of [true, false]) {
    const outbox = createOutbox(store, { source: "/orders", strictKeyOrder });
    const [published, go] = [gate(), gate()];
    const first = store.transaction(async (tx) => {
      await outbox.in(tx).publish(Placed, { n: 1 }, keyed);
      published.open();
      await go.opened;
    });
    await published.opened;
    const second = store.transaction((tx) => outbox.in(tx).publish(Placed, { n: 2 }, keyed));
    expect(await settlesWithin(second, 20)).toBe(!strictKeyOrder);
    go.open();
    await Promise.all([first, second]);
  }
});

describe("a schedule key", () => {
  const store = memoryStore();
  const outbox = createOutbox(store, { source: "/orders" });
  const deliverAt = new Date(Date.now() + 60_000);
  const scheduled = () => store.contents("outbox").scheduled.map(({ id }) => id);

  it("replaces and cancels scheduled messages, however they were published", async () => {
    await store.transaction(async (tx) => {
      await outbox.in(tx).publish(Placed, { n: 1 }, { id: "1", deliverAt, scheduleKey: "a" });
    });
    await store.transaction(async (tx) => {
      const draft = Placed.message({ n: 2 }, { id: "2", deliverAt, scheduleKey: "a" });
      await outbox.in(tx).publishAll([draft, Placed.message({ n: 3 }, { id: "3", deliverAt, scheduleKey: "b" })]);
    });
    expect(scheduled()).toEqual(["2", "3"]);
    const raw = { type: Placed.type, data: Uint8Array.of(1), id: "4", deliverAt, scheduleKey: "b" };
    await store.transaction((tx) => outbox.collecting(tx, (box) => box.send(raw)));
    expect(scheduled()).toEqual(["2", "4"]);
    expect(await store.transaction((tx) => outbox.in(tx).cancel(Placed, "a"))).toBe(true);
    expect(await store.transaction(() => outbox.cancel({ type: Placed.type }, "b"))).toBe(true);
    expect(await store.transaction(() => outbox.cancel(Placed, "b"))).toBe(false);
    expect(scheduled()).toEqual([]);
  });

  it("is rejected without a schedule, or if it is no text", async () => {
    await store.transaction(async (tx) => {
      const box = outbox.in(tx);
      const refused = { code: "message-invalid", path: "scheduleKey" };
      await expect(box.publish(Placed, { n: 1 }, { scheduleKey: "a" } as never)).rejects.toMatchObject(refused);
      await expect(box.send({ type: "t", scheduleKey: "a" })).rejects.toMatchObject(refused);
      await expect(box.publish(Placed, { n: 1 }, { deliverAt, scheduleKey: "" })).rejects.toMatchObject(refused);
      const invalid = { code: "option-invalid" };
      await expect(box.cancel(Placed, undefined as never)).rejects.toMatchObject(invalid);
      await expect(box.cancel(Placed, "")).rejects.toMatchObject(invalid);
      await expect(box.cancel(undefined as never, "a")).rejects.toMatchObject(invalid);
    });
  });

  it("can be cancelled in a transaction only", async () => {
    await expect(outbox.cancel(Placed, "a")).rejects.toMatchObject({ code: "transaction-missing" });
    const ended = await store.transaction(async (tx) => tx);
    await expect(outbox.in(ended).cancel(Placed, "a")).rejects.toMatchObject({ code: "not-a-transaction" });
  });
});

describe("collecting", () => {
  /** An outbox on a store that counts its appends. */
  function collectingOutbox(options: Partial<OutboxOptions> = {}) {
    const store = memoryStore();
    const appends: { readonly ids: readonly string[]; readonly strictKeyOrder: boolean | undefined }[] = [];
    const counted: typeof store = Object.assign(Object.create(store), {
      transaction: store.transaction.bind(store),
      append: (...[tx, box, messages, how]: Parameters<typeof store.append>) => {
        appends.push({ ids: messages.map(({ id }) => id), strictKeyOrder: how?.strictKeyOrder });
        return store.append(tx, box, messages, how);
      },
    });
    const log = telemetryLog();
    const outbox = createOutbox(counted, { source: "/orders", telemetry: log.telemetry, ...options });
    return { store, outbox, appends, log };
  }

  it.each([false, true])("writes everything in one statement, in its order (strictKeyOrder: %s)", async (strict) => {
    const { store, outbox, appends, log } = collectingOutbox({ strictKeyOrder: strict });
    const ids = await store.transaction((tx) =>
      outbox.collecting(tx, async (box) => {
        const one = await box.publish(Placed, { n: 1 }, { key: "b" });
        const many = await box.publishAll([Placed.message({ n: 2 }, { key: "a" }), Placed.message({ n: 3 })]);
        const raw = await box.send({ type: "raw.Bytes", data: Uint8Array.of(1) });
        expect(appends).toEqual([]);
        return [one, ...many, raw].map(({ id }) => id);
      }),
    );
    expect(ids).toHaveLength(4);
    expect(appends).toEqual([{ ids, strictKeyOrder: strict }]);
    expect(store.contents("outbox").pending.map(({ id }) => id)).toEqual(ids);
    expect(log.of("outbox.appended")).toEqual([{ name: "outbox.appended", box: "outbox", count: 4 }]);
  });

  it("notifies once", async () => {
    const store = memoryStore();
    const notified: string[] = [];
    const notifier = { name: "test", notify: async (box: string) => void notified.push(box), listen: async () => {} };
    const outbox = createOutbox(store, { source: "/orders", notifier });
    await store.transaction((tx) =>
      outbox.collecting(tx, async (box) => {
        for (const n of [1, 2, 3]) await box.publish(Placed, { n });
      }),
    );
    expect(notified).toEqual(["outbox"]);
  });

  it("writes nothing if the callback throws, and rejects with its error", async () => {
    const { store, outbox, appends } = collectingOutbox();
    const refused = new Error("after all not");
    await store.transaction(async (tx) => {
      const failing = outbox.collecting(tx, async (box) => {
        await box.publish(Placed, { n: 1 });
        throw refused;
      });
      await expect(failing).rejects.toBe(refused);
    });
    expect(appends).toEqual([]);
    expect(store.contents("outbox").pending).toEqual([]);
  });

  it("runs no statement if nothing was published", async () => {
    const { store, outbox, appends, log } = collectingOutbox();
    expect(await store.transaction((tx) => outbox.collecting(tx, async () => "done"))).toBe("done");
    expect([appends, log.events]).toEqual([[], []]);
  });

  it("validates at once, and runs middleware for each publish", async () => {
    const batches: number[] = [];
    const count: PublishMiddleware = (messages, next) => {
      batches.push(messages.length);
      return next(messages);
    };
    const { store, outbox, appends } = collectingOutbox({ middleware: [count] });
    await store.transaction((tx) =>
      outbox.collecting(tx, async (box) => {
        await expect(box.publish(Placed, { n: "1" } as never)).rejects.toMatchObject({ code: "data-invalid" });
        await box.publish(Placed, { n: 1 });
        await box.publishAll([Placed.message({ n: 2 }), Placed.message({ n: 3 })]);
      }),
    );
    expect(batches).toEqual([1, 2]);
    expect(appends.map(({ ids }) => ids.length)).toEqual([3]);
  });

  it("rejects publishes after the callback, and those that it did not await", async () => {
    const ended = { code: "not-awaited" };
    const { store, outbox, appends } = collectingOutbox();
    await store.transaction(async (tx) => {
      const late = await outbox.collecting(tx, async (box) => box);
      await expect(late.publish(Placed, { n: 1 })).rejects.toMatchObject(ended);
      const forgotten: Promise<unknown>[] = [];
      const hasty = outbox.collecting(tx, async (box) => {
        forgotten.push(box.publish(Placed, { n: 2 }));
      });
      await expect(hasty).rejects.toMatchObject(ended);
      await Promise.allSettled(forgotten);
    });
    expect(appends).toEqual([]);
  });
});
