import { gate, recordingSender, testMessage } from "@postbox/testkit";
import { remember } from "@postbox/testkit/suites";
import { createMessaging, createRelay, outboxReceiver } from "postbox";
import { describe, expect, it } from "vitest";
import { memoryDatabase } from "./memory-database.js";
import { memoryStore } from "./memory-store.js";

describe("memoryStore", () => {
  it("refuses a transaction inside another, and names the way out", async () => {
    const store = memoryStore();
    const nested = store.transaction(() => store.transaction(async () => {}));
    await expect(nested).rejects.toThrow("[transaction-nested] a transaction of memory is open here already");
  });

  it("gives positions in commit order and reports no writers, with inCommitOrder", async () => {
    const store = memoryStore({ database: memoryDatabase({ inCommitOrder: true }) });
    const box = store.box("outbox");
    const [appended, mayCommit] = [gate(), gate()];
    const append = (id: string, before: Promise<void>) =>
      store.transaction(async (tx) => {
        await store.append(tx, "outbox", [testMessage(id, { key: "k" })]);
        appended.open();
        await before;
      });
    const first = append("first", mayCommit.opened);
    await appended.opened;
    await append("second", Promise.resolve());
    mayCommit.open();
    await first;
    const every = Array.from({ length: 64 }, (_, lane) => ({ lane, limit: 10 }));
    expect(box.inCommitOrder).toBe(true);
    const found = await box.read(every);
    expect(found.rows.map(({ message }) => message.id)).toEqual(["second", "first"]);
    expect(found).not.toHaveProperty("writers");
  });

  it("lets what outlives a transaction open its own", async () => {
    const store = memoryStore();
    let later: Promise<number> | undefined;
    await store.transaction(async () => {
      later = new Promise((resolve) => setTimeout(resolve, 5)).then(() => store.transaction(async () => 1));
    });
    expect(await later).toBe(1);
  });

  it("rolls back its own part when a deferred effect throws", async () => {
    const store = memoryStore();
    const failing = store.transaction(async (tx) => {
      await store.append(tx, "outbox", [testMessage("m1")]);
      tx.defer(() => {
        throw new Error("no");
      });
    });
    await expect(failing).rejects.toThrow("no");
    expect(store.contents("outbox").pending).toEqual([]);
  });

  it("does not commit what a deadlock rolled back, even when its error is swallowed", async () => {
    const store = memoryStore();
    const [x, y] = [testMessage("x"), testMessage("y")];
    const swallowing = (first: typeof x, second: typeof x) =>
      store.transaction(async (tx) => {
        await remember(store, tx, "billing", first);
        await store.append(tx, "outbox", [first]);
        await remember(store, tx, "billing", second).catch(() => {});
      });
    const outcomes = await Promise.allSettled([swallowing(x, y), swallowing(y, x)]);
    expect(outcomes.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
    expect(outcomes.find(({ status }) => status === "rejected")).toMatchObject({
      reason: { code: "commit-rolled-back" },
    });
    expect(store.contents("outbox").pending).toHaveLength(1);
  });

  it("never reuses a rolled-back position", async () => {
    const store = memoryStore();
    const append = (id: string) =>
      store.transaction((tx) => store.append(tx, "outbox", [testMessage(id, { key: "k" })]));
    await append("m1");
    const rolledBack = store.transaction(async (tx) => {
      await store.append(tx, "outbox", [testMessage("m2", { key: "k" })]);
      throw new Error("no");
    });
    await rolledBack.catch(() => {});
    await append("m3");
    const { rows } = await store.box("outbox").read(Array.from({ length: 64 }, (_, lane) => ({ lane, limit: 9 })));
    expect(rows.map(({ position }) => position)).toEqual([1, 3]);
  });

  it("refuses options that make no sense, and says what to write", () => {
    const runtime = {} as never;
    expect(() => memoryStore({ database: {} as never })).toThrow("must be what memoryDatabase() returned");
    expect(() => memoryStore({ database: memoryDatabase(), runtime })).toThrow("give 'runtime' to memoryDatabase()");
    expect(() => memoryStore({ nmae: "x" } as never)).toThrow("did you mean 'name'?");
  });

  it("refuses what only a Postgres store has", async () => {
    const store = memoryStore();
    const unknown = (path: string) => ({ code: "option-unknown", path });
    // @ts-expect-error its type tells
    await expect(store.purge({ retentionMs: 0, partitions: false })).rejects.toMatchObject(unknown("partitions"));
    // @ts-expect-error its type tells
    await expect(store.health({ tableBytes: 1 })).rejects.toMatchObject(unknown("tableBytes"));
    const kept = { onSent: "keep", retentionMs: 1 } as const;
    const sender = recordingSender();
    // @ts-expect-error its type tells
    expect(() => createRelay(store, sender, { ...kept, partitions: false })).toThrow("unknown option 'partitions'");
    // @ts-expect-error its type tells
    expect(() => outboxReceiver(store, { ...kept, partitions: false })).toThrow("unknown option 'partitions'");
    const service = { service: "orders", store, sender, outbox: true } as const;
    // @ts-expect-error its type tells
    expect(() => createMessaging({ ...service, relayOptions: { partitions: false } })).toThrow("unknown option");
  });
});
