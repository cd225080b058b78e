import { gate, recordingSender, settlesWithin, testMessage } from "@postbox/testkit";
import { constant, type Sender, type Telemetry } from "postbox";
import { type MemoryDatabase, memoryDatabase, memoryStore } from "postbox/memory";
import type { Box } from "postbox/store";
import { expect, it } from "vitest";
import { runtimeWith } from "../internal/runtime.js";
import { Engine } from "./engine.js";
import { targetTo } from "./sending/dispatch.js";

/** An engine on a box with the messages 1, 2 and 3, that owns all lanes and can be made to lose them. */
async function engineOn(
  sender: Sender,
  change: (box: Box) => Partial<Box> = () => ({}),
  maxInFlight = 100,
  more: readonly string[] = [],
  telemetry: Telemetry = () => {},
  database: MemoryDatabase = memoryDatabase(),
) {
  const store = memoryStore({ database });
  const append = (...ids: string[]) =>
    store.transaction((tx) =>
      store.append(
        tx,
        "outbox",
        ids.map((id) => testMessage(id)),
      ),
    );
  await append("1", "2", "3", ...more);
  const box = store.box("outbox");
  await box.renew("me", 60_000, "total");
  const epochs = new Map<number, number>();
  const engine = new Engine({
    box: {
      ...(box.inCommitOrder && { inCommitOrder: true }),
      read: (...args: Parameters<Box["read"]>) => box.read(...args),
      due: (...args: Parameters<Box["due"]>) => box.due(...args),
      late: (...args: Parameters<Box["late"]>) => box.late(...args),
      settle: (...args: Parameters<Box["settle"]>) => box.settle(...args),
      ...change(box),
    } as Box,
    boxName: "outbox",
    ownership: {
      epochs,
      trusted: () => true,
      paused: () => false,
      of: (rows) =>
        [...epochs]
          .map(([lane, epoch]) => ({ lane, epoch }))
          .filter((own) => rows.some((row) => row.lane === own.lane)),
      lose: () => {},
      startAnew: () => {},
      run: async () => {},
    },
    target: targetTo(sender, {
      boxName: "outbox",
      publishTimeoutMs: 4_000,
      leaseMs: 15_000,
      backoff: constant(10),
      telemetry: () => {},
      runtime: runtimeWith(),
    }),
    order: "total",
    holdParked: false,
    onExpired: "park",
    batchSize: 100,
    maxInFlight,
    maxInFlightBytes: 1_000_000,
    maxAttempts: 10,
    pollIntervalMs: 2,
    publishTimeoutMs: 4_000,
    leaseMs: 15_000,
    keep: false,
    backoff: constant(1),
    storeBackoff: () => 1,
    isPermanent: () => false,
    runtime: runtimeWith(),
    telemetry,
    failed: () => {},
    isFatal: () => false,
  });
  async function gain() {
    const lanes = await box.own("me", 64);
    for (const { lane, epoch } of lanes) epochs.set(lane, epoch);
    engine.gained(lanes);
  }
  /** Another one has the lanes for a while, and sends what `sends` names. */
  async function lose(...sends: string[]) {
    const lanes = [...epochs.keys()];
    epochs.clear();
    engine.lost(lanes);
    await box.release("me");
    await box.renew("another", 60_000, "total");
    const taken = await box.own("another", 64);
    const { rows } = await box.read(taken.map(({ lane }) => ({ lane, limit: 10 })));
    const sent = rows.filter(({ message }) => sends.includes(message.id));
    await box.settle(
      taken,
      sent.map((row) => ({ row, to: "sent" })),
    );
    await box.release("another");
    await box.renew("me", 60_000, "total");
  }
  await gain();
  const controller = new AbortController();
  const running = engine.run(controller.signal);
  const stop = async () => {
    controller.abort();
    await running;
    expect(store.contents("outbox").pending).toEqual([]);
  };
  return { store, append, gain, lose, stop, drain: () => engine.drain([...epochs.keys()]) };
}

/** A sender whose first call waits. */
function slowSender() {
  const [sending, maySend] = [gate(), gate()];
  const sender = recordingSender({
    before() {
      sending.open();
      return maySend.opened;
    },
  });
  return { sender, sending, maySend };
}

it("forgets what it had read when it loses the lanes", async () => {
  const { sender, sending, maySend } = slowSender();
  const { append, gain, lose, stop } = await engineOn(sender);
  await sending.opened;
  await lose("1", "2", "3");
  await append("4");
  await gain();
  maySend.open();
  await sender.until(2);
  expect(sender.ids()).toEqual(["1", "4"]);
  await stop();
});

it("starts over when it regains the lanes: first what the other relay has not sent", async () => {
  const { sender, sending, maySend } = slowSender();
  const { append, gain, lose, stop } = await engineOn(sender);
  await sending.opened;
  await lose("1");
  await append("4");
  await gain();
  maySend.open();
  await sender.until(4);
  expect(sender.ids()).toEqual(["1", "2", "3", "4"]);
  await stop();
});

it("does not accept rows of a read during which it lost the lanes", async () => {
  const [reading, mayRead] = [gate(), gate()];
  const sender = recordingSender();
  const { append, gain, lose, stop } = await engineOn(sender, (box) => ({
    async read(...args) {
      const rows = await box.read(...args);
      reading.open();
      await mayRead.opened;
      return rows;
    },
  }));
  await reading.opened;
  await lose("1", "2", "3");
  await append("4");
  await gain();
  mayRead.open();
  await sender.until(1);
  expect(sender.ids()).toEqual(["4"]);
  await stop();
});

/** A box whose first settle waits, and answers with what all of them were asked. */
function slowSettle() {
  const [settling, maySettle] = [gate(), gate()];
  const asked: string[][] = [];
  const change = (box: Box): Partial<Box> => ({
    async settle(lanes, settlements, options) {
      asked.push(settlements.map(({ row, to }) => `${row.message.id} ${to}`));
      settling.open();
      await maySettle.opened;
      return box.settle(lanes, settlements, options);
    },
  });
  return { change, asked, settling, maySettle };
}

/** Refuses a message so often. */
function refusing(sender: Sender, refused: string, times: number): Sender {
  let refusals = times;
  return {
    ...sender,
    async send(batch, settled, signal) {
      if (batch[0]?.id !== refused || refusals-- <= 0) return sender.send(batch, settled, signal);
      settled(0, { status: "failed", error: new Error("not yet") });
    },
  };
}

it("retries a failed message once its failure is stored, and sends nothing before that", async () => {
  const { change, asked, settling, maySettle } = slowSettle();
  const sender = recordingSender();
  const { stop } = await engineOn(refusing(sender, "1", 2), change);
  await settling.opened;
  expect(await settlesWithin(sender.until(1), 30)).toBe(false);
  maySettle.open();
  await sender.until(3);
  await stop();
  expect(sender.ids()).toEqual(["1", "2", "3"]);
  expect(asked.slice(0, 2)).toEqual([["1 pending"], ["1 pending"]]);
  expect(asked.flat().sort()).toEqual(["1 pending", "1 pending", "1 sent", "2 sent", "3 sent"]);
});

it("moves no rows and reads few, however many wait behind a failing message", async () => {
  const sender = recordingSender();
  const read: number[] = [];
  const asked = new Set<string>();
  const ids = Array.from({ length: 5_000 }, (_, n) => `m${n}`);
  const { stop } = await engineOn(
    refusing(sender, "1", 8),
    (box) => ({
      async read(...args) {
        const found = await box.read(...args);
        read.push(found.rows.length);
        return found;
      },
      settle(lanes, settlements, options) {
        for (const { to } of settlements) asked.add(to);
        return box.settle(lanes, settlements, options);
      },
    }),
    100,
    ids,
  );
  await sender.until(1);
  // Eight failures, and what was read ahead each time.
  expect(read.reduce((sum, rows) => sum + rows, 0)).toBeLessThan(9 * 500);
  await sender.until(ids.length + 3);
  await stop();
  expect(sender.ids()).toEqual(["1", "2", "3", ...ids]);
  expect(asked).toEqual(new Set(["pending", "sent"]));
});

it("continues behind a discarded message while a transaction is open", async () => {
  const sender = recordingSender();
  const told: string[] = [];
  const { store, append, stop } = await engineOn(
    refusing(sender, "2", Number.POSITIVE_INFINITY),
    undefined,
    100,
    [],
    (event) => {
      told.push(event.name);
    },
  );
  await sender.until(1);
  const [appended, mayEnd] = [gate(), gate()];
  const open = store.transaction(async (tx) => {
    await store.append(tx, "outbox", [testMessage("of an open transaction")]);
    appended.open();
    await mayEnd.opened;
  });
  await appended.opened;
  await store.admin.discard({ ids: ["2"], status: "pending" }, { by: "test" });
  await sender.until(2);
  expect(sender.ids()).toEqual(["1", "3"]);
  await append("4");
  await expect.poll(() => told).toContain("relay.blocked");
  mayEnd.open();
  await open;
  await sender.until(4);
  expect(sender.ids()).toEqual(["1", "3", "of an open transaction", "4"]);
  await stop();
});

it("waits for no writer if the box is in commit order", async () => {
  const sender = recordingSender();
  const told: string[] = [];
  const telemetry: Telemetry = ({ name }) => void told.push(name);
  const database = memoryDatabase({ inCommitOrder: true });
  const { store, append, stop } = await engineOn(sender, undefined, 100, [], telemetry, database);
  const [appended, mayEnd] = [gate(), gate()];
  const open = store.transaction(async (tx) => {
    await store.append(tx, "outbox", [testMessage("of an open transaction")]);
    appended.open();
    await mayEnd.opened;
  });
  await appended.opened;
  await append("4");
  await sender.until(4);
  mayEnd.open();
  await open;
  await sender.until(5);
  expect(sender.ids()).toEqual(["1", "2", "3", "4", "of an open transaction"]);
  expect(told).not.toContain("relay.blocked");
  await stop();
});

it("finds the first row even if a read reaches its bytes before every lane was read", async () => {
  const sender = recordingSender();
  const ids = Array.from({ length: 200 }, (_, n) => `m${n}`);
  const { stop } = await engineOn(
    sender,
    (box) => ({
      read: (lanes, options) => box.read(lanes, { ...options, maxBytes: 2_000 }),
      late: (gaps, limit, options) => box.late(gaps, limit, { ...options, maxBytes: 2_000 }),
    }),
    100,
    ids,
  );
  await sender.until(203);
  expect(sender.ids()).toEqual(["1", "2", "3", ...ids]);
  await stop();
});

it("continues after a drain that waited for the same settle", async () => {
  const { change, settling, maySettle } = slowSettle();
  const sender = recordingSender();
  const { drain, gain, lose, stop } = await engineOn(sender, change, 1);
  await settling.opened;
  await sender.until(2);
  // It waits for room now.
  await new Promise(setImmediate);
  const drained = drain();
  maySettle.open();
  await drained;
  await lose();
  await gain();
  await sender.until(3);
  expect(sender.ids()).toEqual(["1", "2", "3"]);
  await stop();
});
