import { gate, recordingSender, testMessage } from "@postbox/testkit";
import { constant, type Sender } from "postbox";
import { memoryStore } from "postbox/memory";
import type { Box } from "postbox/store";
import { expect, it } from "vitest";
import { runtimeWith } from "../internal/runtime.js";
import { targetTo } from "./sending/dispatch.js";
import { createTotalEngine } from "./total-engine.js";

/** An engine on a box with the messages 1, 2 and 3, that owns all lanes and can be made to lose them. */
async function engineOn(sender: Sender, change: (box: Box) => Partial<Box> = () => ({}), maxInFlight = 100) {
  const store = memoryStore();
  const append = (...ids: string[]) =>
    store.transaction((tx) =>
      store.append(
        tx,
        "outbox",
        ids.map((id) => testMessage(id)),
      ),
    );
  await append("1", "2", "3");
  const box = store.box("outbox");
  await box.renew("me", 60_000, "total");
  const epochs = new Map<number, number>();
  const engine = createTotalEngine({
    box: {
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
    target: targetTo(sender, { publishTimeoutMs: 4_000, leaseMs: 15_000, runtime: runtimeWith() }),
    order: "total",
    holdParked: false,
    expired: "park",
    batchSize: 100,
    maxInFlight,
    maxInFlightBytes: 1_000_000,
    maxAttempts: 10,
    pollIntervalMs: 2,
    publishTimeoutMs: 4_000,
    keep: false,
    backoff: constant(1),
    storeBackoff: () => 1,
    isPermanent: () => false,
    runtime: runtimeWith(),
    telemetry: () => {},
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
  return { append, gain, lose, stop, drain: () => engine.drain([...epochs.keys()]) };
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

it("begins anew when it gets the lanes back: what another has not sent comes first", async () => {
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

it("does not take in what it was reading when it lost the lanes", async () => {
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

it("tells the store of each row once, with the last that became of it", async () => {
  const { change, asked, maySettle } = slowSettle();
  const sender = recordingSender();
  let refusals = 2;
  const refusing: Sender = {
    ...sender,
    async send(batch, settled, signal) {
      if (batch[0]?.id !== "2" || refusals-- <= 0) return sender.send(batch, settled, signal);
      settled(0, { status: "failed", error: new Error("not yet") });
    },
  };
  const { stop } = await engineOn(refusing, change);
  await sender.until(3);
  maySettle.open();
  await stop();
  expect(asked).toEqual([["1 sent"], ["2 sent", "3 sent"]]);
});

it("goes on after a drain that waited beside it for the same settle", async () => {
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
