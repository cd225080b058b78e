import { gate, recordingSender, testMessage } from "@postbox/testkit";
import { type Box, constant, type Sender } from "postbox";
import { memoryStore } from "postbox/memory";
import { expect, it } from "vitest";
import { runtimeWith } from "../internal/runtime.js";
import { carrierTo } from "./dispatch.js";
import { createTotalEngine } from "./total-engine.js";

/** An engine on a box with the messages 1, 2 and 3, that owns all lanes and can be made to lose them. */
async function engineOn(sender: Sender, change: (box: Box) => Partial<Box> = () => ({})) {
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
      run: async () => {},
    },
    carrier: carrierTo(sender, 4_000, runtimeWith()),
    order: "total",
    holdParked: false,
    expired: "park",
    batchSize: 100,
    maxInFlight: 100,
    maxInFlightBytes: 1_000_000,
    maxAttempts: 10,
    pollIntervalMs: 2,
    publishTimeoutMs: 4_000,
    keep: false,
    backoff: constant(1),
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
  return { append, gain, lose, stop };
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
