import { faultySender, gate, recordingSender, settlesWithin, telemetryLog, testMessage } from "@postbox/testkit";
import { constant, type Message, type Sender } from "postbox";
import { memoryStore } from "postbox/memory";
import type { Box, Lane, Runtime } from "postbox/store";
import type { Outcome } from "postbox/transport";
import { expect, it } from "vitest";
import { runtimeWith } from "../internal/runtime.js";
import { Engine } from "./engine.js";
import { targetTo } from "./sending/dispatch.js";

/** An engine that owns every lane of a box in memory, and what it settles. */
async function engineOn(
  sender: Sender,
  messages: readonly Message[],
  beforeSettle: () => Promise<void> | void,
  runtime: Partial<Runtime> = {},
  maxInFlight = 100,
) {
  const store = memoryStore();
  await store.transaction((tx) => store.append(tx, "outbox", messages));
  const box = store.box("outbox");
  await box.renew("me", 60_000, "key");
  const lanes = await box.own("me", 64);
  const settled: string[][] = [];
  const watched = {
    read: (...args: Parameters<Box["read"]>) => box.read(...args),
    due: (...args: Parameters<Box["due"]>) => box.due(...args),
    late: (...args: Parameters<Box["late"]>) => box.late(...args),
    async settle(...args: Parameters<Box["settle"]>) {
      settled.push(args[1].map(({ row }) => row.message.id));
      await beforeSettle();
      return box.settle(...args);
    },
  } as Box;
  const epochs = new Map(lanes.map(({ lane, epoch }) => [lane, epoch]));
  const lease = { trusted: true };
  const log = telemetryLog();
  const engine = new Engine({
    box: watched,
    boxName: "outbox",
    ownership: {
      epochs,
      trusted: () => lease.trusted,
      paused: () => false,
      of: (rows) => lanes.filter(({ lane }) => rows.some((row) => row.lane === lane)),
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
      runtime: runtimeWith(runtime),
    }),
    order: "key",
    holdParked: false,
    onExpired: "park",
    batchSize: 200,
    maxInFlight,
    maxInFlightBytes: 1_000_000,
    maxAttempts: 10,
    pollIntervalMs: 5,
    publishTimeoutMs: 4_000,
    leaseMs: 15_000,
    keep: false,
    backoff: constant(1),
    storeBackoff: () => 1,
    isPermanent: () => false,
    runtime: runtimeWith(runtime),
    telemetry: log.telemetry,
    failed: () => {},
    isFatal: () => false,
  });
  const controller = new AbortController();
  const running = engine.run(controller.signal);
  engine.gained(lanes);
  const lose = (lost: readonly Lane[]) => engine.lost(lost.map(({ lane }) => lane));
  const stop = async () => {
    controller.abort();
    await running;
  };
  return { engine, lanes, lease, lose, settled, stop, log, store };
}

it("leaves the messages in flight in a lost lane to its new owner", async () => {
  const [sending, confirm] = [gate(), gate()];
  const sender = recordingSender({
    before() {
      sending.open();
      return confirm.opened;
    },
  });
  const { lanes, lose, settled, stop } = await engineOn(sender, [testMessage("1", { key: "k" })], () => {});
  await sending.opened;
  lose(lanes);
  confirm.open();
  await sender.until(1);
  await stop();
  expect(settled).toEqual([]);
});

it("does not settle decisions that were queued when their lane was lost", async () => {
  const [settling, maySettle] = [gate(), gate()];
  const sender = recordingSender({ keepsOrder: false });
  const messages = ["1", "2"].map((id) => testMessage(id, { key: "k" }));
  const { lanes, lose, settled, stop } = await engineOn(sender, messages, () => {
    settling.open();
    return maySettle.opened;
  });
  await settling.opened;
  await sender.until(2);
  lose(lanes);
  maySettle.open();
  await stop();
  expect(settled).toEqual([["1"]]);
});

it("does not mistake a settle from before a lane was lost for one of the row that was read again", async () => {
  const [settling, maySettle] = [gate(), gate()];
  const inner = recordingSender({ keepsOrder: false });
  let sends = 0;
  const sender = faultySender(inner, ({ id }) => (id === "1" && ++sends === 2 ? "failed" : undefined));
  const messages = ["1", "2"].map((id) => testMessage(id, { key: "k" }));
  const { engine, lanes, lose, log, stop, store } = await engineOn(sender, messages.slice(0, 1), () => {
    settling.open();
    return maySettle.opened;
  });
  await settling.opened;
  lose(lanes);
  // No other relay took the lanes: the engine regains them in the same epoch, and the row is still there.
  engine.gained(lanes);
  await inner.until(1);
  while (sends < 2) await new Promise(setImmediate);
  maySettle.open();
  await log.until("message.failed");
  await store.transaction((tx) => store.append(tx, "outbox", messages.slice(1)));
  await inner.until(2);
  expect(inner.ids()).toEqual(["1", "2"]);
  await stop();
  expect(store.contents("outbox").wait).toEqual([]);
});

it("tries again after an outage even if the delay ends while it is read", async () => {
  const inner = recordingSender();
  let tries = 0;
  const sender = faultySender(inner, () => (++tries === 1 ? "down" : undefined));
  // Each reading of the clock takes longer than the delay between two attempts.
  let now = 0;
  const { stop } = await engineOn(sender, [testMessage("1")], () => {}, { monotonic: () => (now += 0.6) });
  await inner.until(1);
  await stop();
});

it("sends rows that were read after the lease expired once the lease is valid again", async () => {
  const sender = recordingSender();
  const { engine, lease, log, stop, store } = await engineOn(sender, [], () => {});
  lease.trusted = false;
  await store.transaction((tx) => store.append(tx, "outbox", [testMessage("1")]));
  await log.until("relay.read");
  expect(await settlesWithin(sender.until(1), 50)).toBe(false);
  lease.trusted = true;
  engine.resume();
  await sender.until(1);
  await stop();
});

it("drains a lane: finishes what is in flight and sends nothing more of it", async () => {
  const [sending, confirm] = [gate(), gate()];
  const sender = recordingSender({
    keepsOrder: false,
    before() {
      sending.open();
      return confirm.opened;
    },
  });
  const messages = ["1", "2", "3"].map((id) => testMessage(id, { key: "k" }));
  const { engine, lanes, stop, store } = await engineOn(sender, messages, () => {});
  await sending.opened;
  const drained = engine.drain(lanes.map(({ lane }) => lane));
  confirm.open();
  expect(await drained).toHaveLength(lanes.length);
  await stop();
  expect(sender.ids()).toEqual(["1"]);
  expect(store.contents("outbox").pending.map(({ id }) => id)).toEqual(["2", "3"]);
});

it("continues after a settle whose lanes were lost and regained meanwhile", async () => {
  const [settling, maySettle] = [gate(), gate()];
  const inner = recordingSender();
  let sends = 0;
  const sender = faultySender(inner, () => (++sends === 1 ? "failed" : undefined));
  const messages = ["1", "2", "3"].map((id) => testMessage(id, { key: "k" }));
  const beforeSettle = () => {
    settling.open();
    return maySettle.opened;
  };
  const { engine, lanes, lose, log, settled, stop, store } = await engineOn(sender, messages, beforeSettle, {}, 1);
  await settling.opened;
  // The rows behind the failed one go to `wait` with it. That is more than may be unsettled, so nothing is sent until
  // it is stored.
  expect(settled).toEqual([["1", "2", "3"]]);
  lose(lanes);
  await store.transaction((tx) => store.append(tx, "outbox", [testMessage("4")]));
  engine.gained(lanes);
  await log.until("relay.read", 2);
  await new Promise(setImmediate);
  maySettle.open();
  await log.until((event) => event.name === "message.sent" && event.id === "4", "4 to be sent");
  await stop();
});

it("stores a failure after the outcomes of earlier rows of its key, whatever order they are reported in", async () => {
  const mayGoOn = gate();
  const sent = { status: "sent" } as const;
  const failed = { status: "failed", error: new Error("not now") } as const;
  let sends = 0;
  const sender: Sender = {
    name: "test",
    keepsOrder: true,
    async send(batch, settled) {
      const tell = (id: string, outcome: Outcome) =>
        settled(
          batch.findIndex((message) => message.id === id),
          outcome,
        );
      if (++sends > 1) {
        for (const { id } of batch) tell(id, sent);
        return;
      }
      tell("3", failed);
      tell("of another key", sent);
      await mayGoOn.opened;
      tell("2", failed);
      tell("1", sent);
    },
  };
  const messages = ["1", "2", "3"].map((id) => testMessage(id, { key: "k" }));
  const others = [testMessage("of another key", { key: "o" })];
  const { settled, stop, log } = await engineOn(sender, [...messages, ...others], () => {});
  await log.until("message.sent");
  expect(settled).toEqual([["of another key"]]);
  mayGoOn.open();
  await log.until("message.sent", 4);
  await stop();
  expect(settled[1]).toEqual(["1", "2", "3"]);
});
